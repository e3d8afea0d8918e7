//! COPY: its target, and its options with PostgreSQL's checks.

use super::node::{self, Node, need, some};
use super::scope::{Binder, Clause};
use super::statement::*;
use super::utility::{def_bool, defs};
use crate::catalog::{RelationKind, TableDef};
use crate::error::{Result, State};
use pg_query::protobuf::{CopyStmt, DefElem};
use std::sync::Arc;

/// Options as they are collected.
#[derive(Default)]
struct Options {
    format: Option<CopyFormat>,
    freeze: Option<bool>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Option<(bool, bool)>,
    quote: Option<String>,
    escape: Option<String>,
    /// None inside: every column.
    force_quote: Option<Option<Vec<String>>>,
    force_not_null: Option<Vec<String>>,
    force_null: Option<Vec<String>>,
    encoding: Option<String>,
}

impl Binder<'_> {
    pub(crate) fn copy(&mut self, s: &CopyStmt) -> Result<CopyTable> {
        let options = self.copy_options(s)?;
        let (source, names, table) = self.copy_source(s)?;
        let endpoint = match (s.is_program, s.filename.as_str()) {
            (_, "") => CopyEndpoint::Client,
            (true, command) => CopyEndpoint::Program(command.to_owned()),
            (false, file) => CopyEndpoint::File(file.to_owned()),
        };
        let mut copy = self.check_copy(s, &options)?;
        copy.endpoint = endpoint;
        let pick = |b: &Self, what: &str, list: &Option<Vec<String>>| {
            b.copy_columns(what, list.as_deref().unwrap_or_default(), &names, table.as_deref())
        };
        copy.force_quote = match &options.force_quote {
            Some(None) => names.iter().map(|n| n.0).collect(),
            Some(Some(list)) => pick(self, "FORCE_QUOTE", &Some(list.clone()))?,
            None => Vec::new(),
        };
        copy.force_not_null = pick(self, "FORCE_NOT_NULL", &options.force_not_null)?;
        copy.force_null = pick(self, "FORCE_NULL", &options.force_null)?;
        copy.source = source;
        if let Some(table) = table.filter(|_| s.is_from) {
            self.copy_in(s, &table, &names, &mut copy)?;
        }
        Ok(copy)
    }

    /// What is copied, and the columns as (number, name).
    #[allow(clippy::type_complexity)]
    fn copy_source(
        &mut self,
        s: &CopyStmt,
    ) -> Result<(CopySource, Vec<(i16, String)>, Option<Arc<TableDef>>)> {
        let Some(relation) = &s.relation else {
            let Node::SelectStmt(select) = need(&s.query)? else {
                return Err(self.unsupported("COPY of a data-modifying statement", -1));
            };
            let query = self.select(select, true)?;
            let names =
                query.targets.iter().enumerate().map(|(i, t)| (i as i16 + 1, t.name.clone()));
            let names = names.collect();
            return Ok((CopySource::Query(query), names, None));
        };
        let table = if s.is_from {
            let mut silent = relation.clone();
            silent.location = -1;
            self.target_table(&silent, "copy to")?
        } else {
            self.named_table(relation)?
        };
        if table.kind != RelationKind::Table && !s.is_from {
            let what = if table.kind == RelationKind::View { "view" } else { "sequence" };
            let message = format!("cannot copy from {what} \"{}\"", table.name);
            let error = self.error(State::WRONG_OBJECT_TYPE, message, -1);
            return Err(match table.kind {
                RelationKind::View => error.hint("Try the COPY (SELECT ...) TO variant."),
                _ => error,
            });
        }
        let listed = node::names(&s.attlist);
        let columns = if listed.is_empty() {
            table.live_columns().map(|c| c.attnum).collect()
        } else {
            self.column_numbers(&table, &listed)?
        };
        let name = |a: &i16| (*a, table.columns[*a as usize - 1].name.clone());
        let names = columns.iter().map(name).collect();
        Ok((CopySource::Table { table: table.clone(), columns }, names, Some(table)))
    }

    fn copy_columns(
        &self,
        what: &str,
        wanted: &[String],
        names: &[(i16, String)],
        table: Option<&TableDef>,
    ) -> Result<Vec<i16>> {
        let mut out = Vec::with_capacity(wanted.len());
        for name in wanted {
            if let Some((n, _)) = names.iter().find(|x| x.1 == *name) {
                out.push(*n);
                continue;
            }
            if let Some(t) = table.filter(|t| t.column(name).is_none()) {
                return Err(self.no_column(t, name, -1));
            }
            let message = format!("{what} column \"{name}\" not referenced by COPY");
            return Err(self.error(State::INVALID_COLUMN_REFERENCE, message, -1));
        }
        Ok(out)
    }

    /// Defaults, checks and WHERE of COPY FROM.
    fn copy_in(
        &mut self,
        s: &CopyStmt,
        table: &Arc<TableDef>,
        names: &[(i16, String)],
        copy: &mut CopyTable,
    ) -> Result<()> {
        for c in table.live_columns().filter(|c| c.default.is_some()) {
            if names.iter().all(|n| n.0 != c.attnum) {
                copy.defaults.push((c.attnum, self.column_default(c)?));
            }
        }
        copy.checks = self.checks(table)?;
        if let Some(n) = some(&s.where_clause) {
            self.push_scope(&[])?;
            self.table_scope(table, false)?;
            copy.filter = Some(self.condition(n, Clause::CopyWhere)?);
            self.scopes.pop();
        }
        Ok(())
    }

    fn copy_options(&self, s: &CopyStmt) -> Result<Options> {
        let mut o = Options::default();
        let mut seen: Vec<&str> = Vec::new();
        for d in defs(&s.options) {
            let name = d.defname.as_str();
            if seen.contains(&name) {
                let message = "conflicting or redundant options";
                return Err(self.error(State::SYNTAX_ERROR, message, d.location));
            }
            seen.push(name);
            match name {
                "format" => o.format = Some(self.copy_format(d)?),
                "freeze" => o.freeze = Some(def_bool(d)?),
                "delimiter" => o.delimiter = Some(self.text_option(d)?),
                "null" => o.null = Some(self.text_option(d)?),
                "header" => o.header = Some(self.header(d, s.is_from)?),
                "quote" => o.quote = Some(self.text_option(d)?),
                "escape" => o.escape = Some(self.text_option(d)?),
                "encoding" => o.encoding = Some(self.text_option(d)?),
                "force_quote" => {
                    o.force_quote = Some(match some(&d.arg) {
                        Some(Node::AStar(_)) => None,
                        _ => Some(list_option(d)),
                    });
                }
                "force_not_null" => o.force_not_null = Some(list_option(d)),
                "force_null" => o.force_null = Some(list_option(d)),
                _ => {
                    let message = format!("option \"{name}\" not recognized");
                    return Err(self.error(State::SYNTAX_ERROR, message, d.location));
                }
            }
        }
        Ok(o)
    }

    fn text_option(&self, d: &DefElem) -> Result<String> {
        node::def_text(d).ok_or_else(|| {
            let message = format!("{} requires a parameter", d.defname);
            self.error(State::SYNTAX_ERROR, message, d.location)
        })
    }

    fn copy_format(&self, d: &DefElem) -> Result<CopyFormat> {
        let value = self.text_option(d)?;
        Ok(match value.as_str() {
            "text" => CopyFormat::Text,
            "csv" => CopyFormat::Csv,
            "binary" => CopyFormat::Binary,
            other => {
                let message = format!("COPY format \"{other}\" not recognized");
                return Err(self.error(State::INVALID_PARAMETER_VALUE, message, d.location));
            }
        })
    }

    /// (there is one, its names must match).
    fn header(&self, d: &DefElem, from: bool) -> Result<(bool, bool)> {
        if node::def_text(d).is_some_and(|t| t.eq_ignore_ascii_case("match")) {
            if !from {
                let message = "cannot use \"match\" with HEADER in COPY TO";
                return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, -1));
            }
            return Ok((true, true));
        }
        match def_bool(d) {
            Ok(v) => Ok((v, false)),
            Err(_) => {
                let message = "header requires a Boolean value or \"match\"";
                Err(self.error(State::SYNTAX_ERROR, message, -1))
            }
        }
    }

    /// The options together: defaults, and what does not go with what.
    fn check_copy(&self, s: &CopyStmt, o: &Options) -> Result<CopyTable> {
        self.check_modes(s, o)?;
        let format = o.format.unwrap_or(CopyFormat::Text);
        let csv = format == CopyFormat::Csv;
        let default_delimiter = if csv { "," } else { "\t" };
        let delimiter = self.one_byte(o.delimiter.as_deref(), default_delimiter, "delimiter")?;
        let quote = self.one_byte(o.quote.as_deref(), "\"", "quote")?;
        let escape = match &o.escape {
            Some(e) => self.one_byte(Some(e), "\"", "escape")?,
            None => quote,
        };
        let null = o.null.clone().unwrap_or_else(|| if csv { String::new() } else { "\\N".into() });
        let (header, header_match) = o.header.unwrap_or_default();
        let copy = CopyTable {
            source: CopySource::Query(super::bound::Query::default()),
            from: s.is_from,
            endpoint: CopyEndpoint::Client,
            format,
            freeze: o.freeze.unwrap_or(false),
            delimiter,
            null,
            header,
            header_match,
            quote,
            escape,
            force_quote: Vec::new(),
            force_not_null: Vec::new(),
            force_null: Vec::new(),
            filter: None,
            defaults: Vec::new(),
            checks: Vec::new(),
        };
        self.check_characters(&copy)?;
        Ok(copy)
    }

    fn one_byte(&self, given: Option<&str>, default: &str, name: &str) -> Result<char> {
        let mut chars = given.unwrap_or(default).chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) if c.is_ascii() => Ok(c),
            _ => {
                let message = format!("COPY {name} must be a single one-byte character");
                Err(self.error(State::FEATURE_NOT_SUPPORTED, message, -1))
            }
        }
    }

    /// Options that belong to another format or direction.
    fn check_modes(&self, s: &CopyStmt, o: &Options) -> Result<()> {
        let format = o.format.unwrap_or(CopyFormat::Text);
        let csv = format == CopyFormat::Csv;
        let fail = |state: State, m: &str| Err(self.error(state, m.to_owned(), -1));
        let (syntax, feature) = (State::SYNTAX_ERROR, State::FEATURE_NOT_SUPPORTED);
        if format == CopyFormat::Binary {
            if o.delimiter.is_some() {
                return fail(syntax, "cannot specify DELIMITER in BINARY mode");
            }
            if o.null.is_some() {
                return fail(syntax, "cannot specify NULL in BINARY mode");
            }
            if o.header.is_some_and(|h| h.0) {
                return fail(feature, "cannot specify HEADER in BINARY mode");
            }
        }
        for (given, name) in [(o.quote.is_some(), "quote"), (o.escape.is_some(), "escape")] {
            if given && !csv {
                return fail(feature, &format!("COPY {name} available only in CSV mode"));
            }
        }
        let force = [
            (o.force_quote.is_some(), "quote", !s.is_from, "TO"),
            (o.force_not_null.is_some(), "not null", s.is_from, "FROM"),
            (o.force_null.is_some(), "null", s.is_from, "FROM"),
        ];
        for (given, name, direction, word) in force {
            if given && !csv {
                return fail(feature, &format!("COPY force {name} available only in CSV mode"));
            }
            if given && !direction {
                let message = format!("COPY force {name} only available using COPY {word}");
                return fail(feature, &message);
            }
        }
        if o.freeze == Some(true) && !s.is_from {
            return fail(feature, "COPY FREEZE only available using COPY FROM");
        }
        if s.where_clause.is_some() && !s.is_from {
            return fail(feature, "WHERE clause not allowed with COPY TO");
        }
        if let Some(e) = &o.encoding
            && !matches!(e.to_ascii_uppercase().replace('-', "").as_str(), "UTF8" | "UNICODE")
        {
            return Err(self.unsupported(&format!("COPY encoding \"{e}\""), -1));
        }
        Ok(())
    }

    /// Characters that would be mistaken for one another.
    fn check_characters(&self, c: &CopyTable) -> Result<()> {
        let csv = c.format == CopyFormat::Csv;
        let fail = |state: State, m: &str| Err(self.error(state, m.to_owned(), -1));
        let (value, feature) = (State::INVALID_PARAMETER_VALUE, State::FEATURE_NOT_SUPPORTED);
        if matches!(c.delimiter, '\n' | '\r') {
            return fail(value, "COPY delimiter cannot be newline or carriage return");
        }
        if c.null.contains(['\n', '\r']) {
            return fail(value, "COPY null representation cannot use newline or carriage return");
        }
        let taken = "\\.abcdefghijklmnopqrstuvwxyz0123456789";
        if c.format == CopyFormat::Text && taken.contains(c.delimiter) {
            return fail(value, &format!("COPY delimiter cannot be \"{}\"", c.delimiter));
        }
        if csv && c.delimiter == c.quote {
            return fail(value, "COPY delimiter and quote must be different");
        }
        if c.format != CopyFormat::Binary && c.null.contains(c.delimiter) {
            return fail(feature, "COPY delimiter must not appear in the NULL specification");
        }
        if csv && c.null.contains(c.quote) {
            return fail(feature, "CSV quote character must not appear in the NULL specification");
        }
        Ok(())
    }
}

fn list_option(d: &DefElem) -> Vec<String> {
    match some(&d.arg) {
        Some(Node::List(l)) => node::owned_names(&l.items),
        _ => Vec::new(),
    }
}
