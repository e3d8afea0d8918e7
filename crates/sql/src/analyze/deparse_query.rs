//! Bound queries back to SQL: what a view's definition is kept and shown as.
//!
//! Every entry gets a name that is unique among the names that can be seen where it is used, and
//! columns are written with it wherever a query has more than one entry or an outer query.

use super::bound::*;
use super::deparse::{Deparse, Level, cast_argument, column_names, quote_ident};
use crate::functions::Builtin;
use crate::types::Oid;

impl Deparse<'_> {
    /// `names`: what the output columns are called (None: as the query has it).
    pub(crate) fn query(&mut self, q: &Query, names: Option<&[String]>) {
        super::with_stack(0, || {
            let level = self.level_of(q);
            self.levels.push(level);
            self.ctes.push(q.ctes.iter().map(|c| c.name.clone()).collect());
            self.with(q);
            match &q.set_operation {
                Some(set) => self.set_operation(q, set),
                None => self.plain_query(q, names),
            }
            self.ctes.pop();
            self.levels.pop();
        });
    }

    /// Names the entries of a query.
    fn level_of(&self, q: &Query) -> Level {
        let mut entries: Vec<(String, Vec<String>)> = Vec::with_capacity(q.rtes.len());
        for rte in &q.rtes {
            let taken = |name: &str, entries: &[(String, Vec<String>)]| {
                entries.iter().any(|e| e.0 == name)
                    || self.levels.iter().any(|l| l.entries.iter().any(|e| e.0 == name))
            };
            let mut name = rte.name.clone();
            let mut n = 0;
            while taken(&name, &entries) {
                n += 1;
                name = format!("{}_{n}", rte.name);
            }
            entries.push((name, column_names(rte)));
        }
        Level { prefix: q.rtes.len() > 1 || !self.levels.is_empty(), entries }
    }

    /// A new line in pretty text, a space otherwise.
    fn line(&mut self, pretty_indent: usize) {
        if self.pretty {
            self.out.push('\n');
            let spaces = self.indent + pretty_indent;
            self.out.extend(std::iter::repeat_n(' ', spaces));
        } else {
            self.out.push(' ');
        }
    }

    fn with(&mut self, q: &Query) {
        if q.ctes.is_empty() {
            return;
        }
        let recursive = q.ctes.iter().any(|c| c.recursive);
        self.push(if recursive { "WITH RECURSIVE " } else { "WITH " });
        for (i, cte) in q.ctes.iter().enumerate() {
            if i > 0 {
                self.push(", ");
            }
            self.ident(&cte.name);
            let renamed = cte.query.targets.iter().zip(&cte.columns).any(|(t, c)| t.name != c.name);
            if renamed {
                let names: Vec<String> = cte.columns.iter().map(|c| c.name.clone()).collect();
                self.column_list(&names);
            }
            self.push(match cte.materialized {
                Some(true) => " AS MATERIALIZED ( ",
                Some(false) => " AS NOT MATERIALIZED ( ",
                None => " AS ( ",
            });
            self.nested(&cte.query);
            self.push(")");
        }
        self.line(1);
    }

    fn column_list(&mut self, names: &[String]) {
        let quoted: Vec<String> = names.iter().map(|n| quote_ident(n).into_owned()).collect();
        self.push(&format!("({})", quoted.join(", ")));
    }

    fn set_operation(&mut self, q: &Query, set: &SetOperation) {
        self.side(&set.left);
        self.line(0);
        self.push(match set.op {
            SetOperator::Union => "UNION",
            SetOperator::Intersect => "INTERSECT",
            SetOperator::Except => "EXCEPT",
        });
        if set.all {
            self.push(" ALL");
        }
        self.line(1);
        self.side(&set.right);
        if !q.order_by.is_empty() {
            self.line(2);
            self.push("ORDER BY ");
            for (i, key) in q.order_by.iter().enumerate() {
                if i > 0 {
                    self.push(", ");
                }
                let position = match &key.expr {
                    Expr::Var(v) => v.col + 1,
                    _ => 1,
                };
                self.push(&position.to_string());
                self.push(match (key.descending, key.nulls_first) {
                    (false, false) => "",
                    (false, true) => " NULLS FIRST",
                    (true, true) => " DESC",
                    (true, false) => " DESC NULLS LAST",
                });
            }
        }
        self.limits(q);
    }

    fn side(&mut self, q: &Query) {
        let needs = q.set_operation.is_some()
            || !q.order_by.is_empty()
            || q.limit.is_some()
            || q.offset.is_some()
            || !q.ctes.is_empty();
        if needs {
            self.push("(");
        }
        self.query(q, None);
        if needs {
            self.push(")");
        }
    }

    fn limits(&mut self, q: &Query) {
        if let Some(e) = &q.offset {
            self.line(1);
            self.push("OFFSET ");
            self.expr(cast_argument(e, Oid::INT8));
        }
        if let Some(e) = &q.limit {
            self.line(1);
            self.push("LIMIT ");
            self.expr(cast_argument(e, Oid::INT8));
        }
    }

    fn plain_query(&mut self, q: &Query, names: Option<&[String]>) {
        if let Some(rows) = plain_values(q) {
            self.values(rows);
            return;
        }
        self.push("SELECT");
        match &q.distinct {
            Some(Distinct::All) => self.push(" DISTINCT"),
            Some(Distinct::On(list)) => {
                self.push(" DISTINCT ON (");
                self.list(list);
                self.push(")");
            }
            None => {}
        }
        for (i, t) in q.targets.iter().enumerate() {
            if i > 0 {
                self.push(",");
                self.line(4);
            } else {
                self.push(" ");
            }
            let name = names.and_then(|n| n.get(i)).unwrap_or(&t.name);
            self.target(t, name);
        }
        if !q.from.is_empty() {
            self.line(3);
            self.push("FROM ");
            for (i, item) in q.from.iter().enumerate() {
                if i > 0 {
                    self.push(",");
                    self.line(4);
                }
                self.from_item(q, item);
            }
        }
        if let Some(e) = &q.filter {
            self.line(2);
            self.push("WHERE ");
            self.expr(e);
        }
        if !q.group_by.is_empty() {
            self.line(2);
            self.push("GROUP BY ");
            for (i, e) in q.group_by.iter().enumerate() {
                if i > 0 {
                    self.push(", ");
                }
                self.keyed(e);
            }
        }
        if let Some(e) = &q.having {
            self.line(1);
            self.push("HAVING ");
            self.expr(e);
        }
        if !q.order_by.is_empty() {
            self.line(2);
            self.push("ORDER BY ");
            self.sort_keys(&q.order_by);
        }
        self.limits(q);
        self.row_marks(q);
    }

    /// A GROUP BY item: a constant would be taken for a position.
    fn keyed(&mut self, e: &Expr) {
        let constant = matches!(e, Expr::Const { .. });
        if constant {
            self.push("(");
        }
        self.expr(e);
        if constant {
            self.push(")");
        }
    }

    fn target(&mut self, t: &Target, name: &str) {
        let before = self.out.len();
        self.expr(&t.expr);
        let same = match &t.expr {
            Expr::Var(_) => {
                let written = &self.out[before..];
                let quoted = quote_ident(name);
                written == quoted || written.ends_with(&format!(".{quoted}"))
            }
            _ => false,
        };
        if !same {
            self.push(" AS ");
            self.ident(name);
        }
    }

    fn values(&mut self, rows: &[Vec<Expr>]) {
        self.push("VALUES ");
        for (i, row) in rows.iter().enumerate() {
            if i > 0 {
                self.push(", ");
            }
            self.push("(");
            self.list(row);
            self.push(")");
        }
    }

    fn row_marks(&mut self, q: &Query) {
        for m in &q.row_marks {
            self.push(match m.strength {
                LockStrength::Update => " FOR UPDATE",
                LockStrength::NoKeyUpdate => " FOR NO KEY UPDATE",
                LockStrength::Share => " FOR SHARE",
                LockStrength::KeyShare => " FOR KEY SHARE",
            });
            let name = self.entry_name(m.rte);
            self.push(" OF ");
            self.ident(&name);
            self.push(match m.wait {
                LockWaitPolicy::Block => "",
                LockWaitPolicy::SkipLocked => " SKIP LOCKED",
                LockWaitPolicy::NoWait => " NOWAIT",
            });
        }
    }

    fn entry_name(&self, rte: u16) -> String {
        let entries = self.levels.last().map(|l| &l.entries);
        entries.and_then(|e| e.get(usize::from(rte))).map_or_else(String::new, |e| e.0.clone())
    }

    fn from_item(&mut self, q: &Query, item: &FromItem) {
        match item {
            FromItem::Rte(rte) => self.from_entry(q, *rte),
            FromItem::Join { kind, left, right, on } => super::with_stack(0, || {
                self.push("(");
                self.from_item(q, left);
                self.line(5);
                self.push(match (kind, on.is_some()) {
                    (JoinKind::Inner, false) => "CROSS JOIN ",
                    (JoinKind::Inner, true) => "JOIN ",
                    (JoinKind::Left, _) => "LEFT JOIN ",
                    (JoinKind::Right, _) => "RIGHT JOIN ",
                    (JoinKind::Full, _) => "FULL JOIN ",
                });
                self.from_item(q, right);
                match on {
                    Some(e) => {
                        self.push(" ON (");
                        self.expr(e);
                        self.push(")");
                    }
                    None if *kind != JoinKind::Inner => self.push(" ON (true)"),
                    None => {}
                }
                self.push(")");
            }),
        }
    }

    fn from_entry(&mut self, q: &Query, rte: u16) {
        let Some(entry) = q.rtes.get(usize::from(rte)) else { return };
        let alias = self.entry_name(rte);
        let names = column_names(entry);
        match &entry.source {
            RangeSource::Table(t) => {
                self.relation(t.oid);
                let own: Vec<String> = t.columns.iter().map(|c| c.name.clone()).collect();
                self.alias(&alias, Some(&t.name), live(entry, &names, &own));
            }
            RangeSource::Subquery { query, lateral } => match &query.view {
                Some(v) => {
                    self.relation(v.oid);
                    let own: Vec<String> = v.columns.iter().map(|c| c.name.clone()).collect();
                    self.alias(&alias, Some(&v.name), (own != names).then_some(names));
                }
                None => {
                    self.push(if *lateral { "LATERAL ( " } else { "( " });
                    // The sub-select's own columns are not in scope of its text.
                    self.nested(query);
                    self.push(")");
                    let own: Vec<String> = query.targets.iter().map(|t| t.name.clone()).collect();
                    self.alias(&alias, None, (own != names).then_some(names));
                }
            },
            RangeSource::Function { function, args, ordinality, .. } => {
                self.plain_call(function, args);
                if *ordinality {
                    self.push(" WITH ORDINALITY");
                }
                let shown = function_columns(function, &names, *ordinality, &alias);
                self.alias(&alias, None, shown.then_some(names));
            }
            RangeSource::RowsFrom { functions, ordinality, .. } => {
                self.push("ROWS FROM(");
                for (i, (function, args)) in functions.iter().enumerate() {
                    if i > 0 {
                        self.push(", ");
                    }
                    self.plain_call(function, args);
                }
                self.push(if *ordinality { ") WITH ORDINALITY" } else { ")" });
                self.alias(&alias, None, Some(names));
            }
            RangeSource::Values { rows, .. } => {
                self.push("(");
                self.values(rows);
                self.push(")");
                self.alias(&alias, None, Some(names));
            }
            RangeSource::Cte { level, index } | RangeSource::WorkTable { level, index } => {
                let at = self.ctes.len().checked_sub(1 + usize::from(*level));
                let name = at.and_then(|l| self.ctes[l].get(*index)).cloned().unwrap_or_default();
                self.ident(&name);
                self.alias(&alias, Some(&name), None);
            }
            RangeSource::Join => {}
        }
    }

    fn alias(&mut self, alias: &str, own: Option<&str>, columns: Option<Vec<String>>) {
        if own != Some(alias) || columns.is_some() {
            self.push(" ");
            self.ident(alias);
        }
        if let Some(columns) = columns {
            self.column_list(&columns);
        }
    }
}

/// The live columns' names, if FROM renamed any.
fn live(entry: &RangeEntry, names: &[String], own: &[String]) -> Option<Vec<String>> {
    let renamed = entry.columns.iter().zip(own).any(|(c, o)| !c.dropped && c.name != *o);
    let live = || entry.columns.iter().zip(names).filter(|(c, _)| !c.dropped);
    renamed.then(|| live().map(|(_, n)| n.clone()).collect())
}

/// Whether a function's columns must be listed after its alias.
fn function_columns(f: &Builtin, names: &[String], ordinality: bool, alias: &str) -> bool {
    if f.columns.is_empty() && f.result != Oid::RECORD {
        return ordinality || names.first().is_some_and(|n| n != alias);
    }
    f.columns.iter().zip(names).any(|(c, n)| c.0 != n)
}

/// The rows, when the query is nothing but VALUES.
fn plain_values(q: &Query) -> Option<&[Vec<Expr>]> {
    let [RangeEntry { source: RangeSource::Values { rows, .. }, .. }] = q.rtes.as_slice() else {
        return None;
    };
    let plain = q.filter.is_none()
        && q.order_by.is_empty()
        && q.limit.is_none()
        && q.offset.is_none()
        && !q.grouped
        && q.distinct.is_none()
        && q.targets.iter().enumerate().all(|(i, t)| {
            matches!(&t.expr, Expr::Var(v) if usize::try_from(v.col).is_ok_and(|c| c == i))
                && t.name == format!("column{}", i + 1)
        });
    plain.then_some(rows)
}
