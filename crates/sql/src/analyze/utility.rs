//! Statements that are neither queries nor data definition: transactions, settings, COPY, VACUUM,
//! EXPLAIN, prepared statements, cursors, locks.

use super::bound::{Expr, Query};
use super::node::{self, Node, need, some};
use super::scope::{Binder, Clause};
use super::statement::*;
use crate::catalog::{RelationKind, TableDef};
use crate::error::{Result, SqlError, State};

use pg_query::protobuf::{self, DefElem, TransactionStmtKind, VariableSetKind};
use std::sync::Arc;

/// The DefElems of a list.
pub(crate) fn defs(list: &[node::Boxed]) -> impl Iterator<Item = &DefElem> {
    node::each(list).filter_map(|n| match n {
        Node::DefElem(d) => Some(&**d),
        _ => None,
    })
}

impl Binder<'_> {
    /// Every statement that is not a query, INSERT, UPDATE or DELETE.
    pub(crate) fn utility(&mut self, n: &Node) -> Result<Utility> {
        Ok(match n {
            Node::TransactionStmt(s) => self.transaction(s)?,
            Node::VariableSetStmt(s) => self.set_statement(s)?,
            Node::VariableShowStmt(s) => Utility::Show(match s.name.as_str() {
                "all" => ShowTarget::All,
                name => ShowTarget::Name(name.to_owned()),
            }),
            Node::AlterSystemStmt(s) => {
                match self.set_statement(s.setstmt.as_ref().ok_or_else(node::missing)?)? {
                    Utility::Set(v) if v.values.is_none() => {
                        Utility::AlterSystemReset(ResetTarget::Name(v.name))
                    }
                    Utility::Set(v) => Utility::AlterSystem(v),
                    Utility::Reset(r) => Utility::AlterSystemReset(r),
                    _ => return Err(node::missing()),
                }
            }
            Node::ConstraintsSetStmt(s) => self.set_constraints(s)?,
            Node::CopyStmt(s) => Utility::Copy(Box::new(self.copy(s)?)),
            Node::VacuumStmt(s) => Utility::Vacuum(self.vacuum(s)?),
            Node::ReindexStmt(s) => Utility::Reindex(self.reindex(s)?),
            Node::CheckPointStmt(_) => Utility::Checkpoint,
            Node::ExplainStmt(s) => Utility::Explain(self.explain(s)?),
            Node::PrepareStmt(s) => Utility::Prepare(self.prepare(s)?),
            Node::ExecuteStmt(s) => Utility::Execute(self.execute(s)?),
            Node::DeallocateStmt(s) => {
                Utility::Deallocate((!s.isall && !s.name.is_empty()).then(|| s.name.clone()))
            }
            Node::DeclareCursorStmt(s) => Utility::DeclareCursor(Box::new(self.cursor(s)?)),
            Node::FetchStmt(s) => Utility::Fetch(fetch(s)?),
            Node::ClosePortalStmt(s) => {
                Utility::Close((!s.portalname.is_empty()).then(|| s.portalname.clone()))
            }
            Node::DiscardStmt(s) => Utility::Discard(match s.target() {
                protobuf::DiscardMode::DiscardPlans => Discard::Plans,
                protobuf::DiscardMode::DiscardSequences => Discard::Sequences,
                protobuf::DiscardMode::DiscardTemp => Discard::Temp,
                _ => Discard::All,
            }),
            Node::LockStmt(s) => Utility::Lock(self.lock(s)?),
            Node::UnlistenStmt(s) if s.conditionname.is_empty() => Utility::UnlistenAll,
            other => return self.definition(other),
        })
    }

    // ----- Transactions and settings.

    fn transaction(&self, s: &protobuf::TransactionStmt) -> Result<Utility> {
        use TransactionStmtKind as Kind;
        Ok(match s.kind() {
            Kind::TransStmtBegin => Utility::Begin { modes: modes(&s.options)?, start: false },
            Kind::TransStmtStart => Utility::Begin { modes: modes(&s.options)?, start: true },
            Kind::TransStmtCommit => Utility::Commit { chain: s.chain },
            Kind::TransStmtRollback => Utility::Rollback { chain: s.chain },
            Kind::TransStmtSavepoint => Utility::Savepoint(s.savepoint_name.clone()),
            Kind::TransStmtRelease => Utility::Release(s.savepoint_name.clone()),
            Kind::TransStmtRollbackTo => Utility::RollbackTo(s.savepoint_name.clone()),
            Kind::TransStmtPrepare => Utility::PrepareTransaction(s.gid.clone()),
            Kind::TransStmtCommitPrepared => Utility::CommitPrepared(s.gid.clone()),
            Kind::TransStmtRollbackPrepared => Utility::RollbackPrepared(s.gid.clone()),
            Kind::Undefined => return Err(node::missing()),
        })
    }

    fn set_statement(&self, s: &protobuf::VariableSetStmt) -> Result<Utility> {
        match s.kind() {
            VariableSetKind::VarSetValue => {
                let mut values = Vec::with_capacity(s.args.len());
                for n in node::each(&s.args) {
                    match node::value_text(n) {
                        Some(v) => values.push(v),
                        None => {
                            return Err(self.unsupported("SET with an INTERVAL value", s.location));
                        }
                    }
                }
                let name = s.name.to_ascii_lowercase();
                Ok(Utility::Set(SetVariable { name, values: Some(values), local: s.is_local }))
            }
            VariableSetKind::VarSetDefault => {
                let name = s.name.to_ascii_lowercase();
                Ok(Utility::Set(SetVariable { name, values: None, local: s.is_local }))
            }
            VariableSetKind::VarReset => {
                Ok(Utility::Reset(ResetTarget::Name(s.name.to_ascii_lowercase())))
            }
            VariableSetKind::VarResetAll => Ok(Utility::Reset(ResetTarget::All)),
            VariableSetKind::VarSetMulti => match s.name.as_str() {
                "TRANSACTION" => Ok(Utility::SetTransaction(modes(&s.args)?)),
                "SESSION CHARACTERISTICS" => {
                    Ok(Utility::SetSessionCharacteristics(modes(&s.args)?))
                }
                "TRANSACTION SNAPSHOT" => {
                    let id = node::each(&s.args).next().and_then(node::value_text);
                    Ok(Utility::SetTransactionSnapshot(id.ok_or_else(node::missing)?))
                }
                other => Err(self.unsupported(&format!("SET {other}"), s.location)),
            },
            _ => Err(self.unsupported("SET ... FROM CURRENT", s.location)),
        }
    }

    fn set_constraints(&mut self, s: &protobuf::ConstraintsSetStmt) -> Result<Utility> {
        let mut constraints = Vec::new();
        for n in node::each(&s.constraints) {
            let Node::RangeVar(r) = n else { return Err(node::missing()) };
            let schema = (!r.schemaname.is_empty()).then_some(r.schemaname.as_str());
            let wanted = match schema {
                Some(name) => Some(self.need_schema(name, r.location)?),
                None => None,
            };
            let tables = self.cx.catalog.tables.values();
            let in_path = |t: &&Arc<TableDef>| match wanted {
                Some(s) => t.schema == s,
                None => self.cx.search_path.contains(&t.schema),
            };
            let named = tables.filter(in_path).flat_map(|t| &t.constraints);
            let found: Vec<_> = named.filter(|c| c.name == r.relname).collect();
            if found.is_empty() {
                let message = format!("constraint \"{}\" does not exist", r.relname);
                return Err(self.error(State::UNDEFINED_OBJECT, message, -1));
            }
            for c in found {
                if !c.deferrable {
                    let message = format!("constraint \"{}\" is not deferrable", c.name);
                    return Err(self.error(State::WRONG_OBJECT_TYPE, message, -1));
                }
                constraints.push(c.oid);
            }
        }
        Ok(Utility::SetConstraints(SetConstraints { constraints, deferred: s.deferred }))
    }

    // ----- VACUUM, ANALYZE, REINDEX, LOCK.

    fn vacuum(&mut self, s: &protobuf::VacuumStmt) -> Result<Vacuum> {
        let mut v =
            Vacuum { is_vacuum: s.is_vacuumcmd, analyze: !s.is_vacuumcmd, ..Vacuum::default() };
        for d in defs(&s.options) {
            let name = d.defname.as_str();
            let tri = |d: &DefElem| match node::def_text(d).as_deref() {
                Some("auto") => Ok(None),
                _ => def_bool(d).map(Some),
            };
            match name {
                "verbose" => v.verbose = def_bool(d)?,
                "skip_locked" => v.skip_locked = def_bool(d)?,
                "analyze" if v.is_vacuum => v.analyze = def_bool(d)?,
                "full" if v.is_vacuum => v.full = def_bool(d)?,
                "freeze" if v.is_vacuum => v.freeze = def_bool(d)?,
                "disable_page_skipping" if v.is_vacuum => v.disable_page_skipping = def_bool(d)?,
                "index_cleanup" if v.is_vacuum => v.index_cleanup = tri(d)?,
                "truncate" if v.is_vacuum => v.truncate = Some(def_bool(d)?),
                "process_toast" if v.is_vacuum => v.process_toast = Some(def_bool(d)?),
                "parallel" if v.is_vacuum => {
                    let value = node::def_text(d).and_then(|t| t.parse::<i32>().ok());
                    match value {
                        Some(n) if (0..=1024).contains(&n) => v.parallel = Some(n),
                        Some(_) => {
                            let message = "parallel workers for vacuum must be between 0 and 1024";
                            return Err(self.error(State::SYNTAX_ERROR, message, d.location));
                        }
                        None => {
                            let message = "parallel option requires a value between 0 and 1024";
                            return Err(self.error(State::SYNTAX_ERROR, message, d.location));
                        }
                    }
                }
                _ => {
                    let command = if v.is_vacuum { "VACUUM" } else { "ANALYZE" };
                    let message = format!("unrecognized {command} option \"{name}\"");
                    return Err(self.error(State::SYNTAX_ERROR, message, d.location));
                }
            }
        }
        for n in node::each(&s.rels) {
            let Node::VacuumRelation(r) = n else { return Err(node::missing()) };
            let relation = r.relation.as_ref().ok_or_else(node::missing)?;
            let table = self.named_table(relation)?;
            let columns = self.column_numbers(&table, &node::names(&r.va_cols))?;
            if !columns.is_empty() && !v.analyze {
                let message = "ANALYZE option must be specified when a column list is provided";
                return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, -1));
            }
            v.targets.push(VacuumTarget { table, columns });
        }
        Ok(v)
    }

    /// attnums of named columns.
    pub(crate) fn column_numbers(&self, table: &TableDef, names: &[&str]) -> Result<Vec<i16>> {
        let mut out = Vec::with_capacity(names.len());
        for name in names {
            let Some(c) = table.column(name) else {
                return Err(self.no_column(table, name, -1));
            };
            if out.contains(&c.attnum) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(self.error(State::DUPLICATE_COLUMN, message, -1));
            }
            out.push(c.attnum);
        }
        Ok(out)
    }

    fn reindex(&mut self, s: &protobuf::ReindexStmt) -> Result<Reindex> {
        use protobuf::ReindexObjectType as Kind;
        let mut verbose = false;
        let mut concurrently = false;
        for d in defs(&s.params) {
            match d.defname.as_str() {
                "verbose" => verbose = def_bool(d)?,
                "concurrently" => concurrently = def_bool(d)?,
                "tablespace" => return Err(self.unsupported("REINDEX (TABLESPACE)", d.location)),
                name => {
                    let message = format!("unrecognized REINDEX option \"{name}\"");
                    return Err(self.error(State::SYNTAX_ERROR, message, d.location));
                }
            }
        }
        let relation = || s.relation.as_ref().ok_or_else(node::missing);
        let target = match s.kind() {
            Kind::ReindexObjectIndex => {
                let r = relation()?;
                let schema = (!r.schemaname.is_empty()).then_some(r.schemaname.as_str());
                match self.find_relation(schema, &r.relname, r.location)? {
                    Some(oid) if self.cx.catalog.indexes.contains_key(&oid) => {
                        ReindexTarget::Index(oid)
                    }
                    Some(_) => {
                        let message = format!("\"{}\" is not an index", r.relname);
                        return Err(self.error(State::WRONG_OBJECT_TYPE, message, -1));
                    }
                    None => return Err(self.missing_relation(schema, &r.relname, -1)),
                }
            }
            Kind::ReindexObjectTable => ReindexTarget::Table(self.named_table(relation()?)?.oid),
            Kind::ReindexObjectSchema => ReindexTarget::Schema(self.need_schema(&s.name, -1)?),
            Kind::ReindexObjectSystem => ReindexTarget::System,
            _ => ReindexTarget::Database,
        };
        Ok(Reindex { target, concurrently, verbose })
    }

    fn lock(&mut self, s: &protobuf::LockStmt) -> Result<Lock> {
        let mut tables = Vec::with_capacity(s.relations.len());
        for n in node::each(&s.relations) {
            let Node::RangeVar(r) = n else { return Err(node::missing()) };
            let table = self.named_table(r)?;
            if !matches!(table.kind, RelationKind::Table | RelationKind::View) {
                let message = format!("cannot lock relation \"{}\"", table.name);
                return Err(self.error(State::WRONG_OBJECT_TYPE, message, -1));
            }
            tables.push(table);
        }
        let mode = match s.mode {
            1 => TableLockMode::AccessShare,
            2 => TableLockMode::RowShare,
            3 => TableLockMode::RowExclusive,
            4 => TableLockMode::ShareUpdateExclusive,
            5 => TableLockMode::Share,
            6 => TableLockMode::ShareRowExclusive,
            7 => TableLockMode::Exclusive,
            _ => TableLockMode::AccessExclusive,
        };
        Ok(Lock { tables, mode, nowait: s.nowait })
    }

    // ----- EXPLAIN, prepared statements, cursors.

    fn explain(&mut self, s: &protobuf::ExplainStmt) -> Result<Explain> {
        let inner = need(&s.query)?;
        let statement = Box::new(self.deeper(|b| super::bind_node(b, inner))?);
        let mut e = Explain {
            statement,
            format: ExplainFormat::Text,
            analyze: false,
            verbose: false,
            costs: true,
            buffers: false,
            wal: false,
            settings: false,
            timing: false,
            summary: false,
        };
        let (mut timing, mut summary) = (None, None);
        for d in defs(&s.options) {
            match d.defname.as_str() {
                "analyze" => e.analyze = def_bool(d)?,
                "verbose" => e.verbose = def_bool(d)?,
                "costs" => e.costs = def_bool(d)?,
                "buffers" => e.buffers = def_bool(d)?,
                "wal" => e.wal = def_bool(d)?,
                "settings" => e.settings = def_bool(d)?,
                "timing" => timing = Some(def_bool(d)?),
                "summary" => summary = Some(def_bool(d)?),
                "format" => e.format = self.explain_format(d)?,
                name => {
                    let message = format!("unrecognized EXPLAIN option \"{name}\"");
                    return Err(self.error(State::SYNTAX_ERROR, message, d.location));
                }
            }
        }
        if e.wal && !e.analyze {
            let message = "EXPLAIN option WAL requires ANALYZE";
            return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
        }
        if timing == Some(true) && !e.analyze {
            let message = "EXPLAIN option TIMING requires ANALYZE";
            return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
        }
        e.timing = timing.unwrap_or(e.analyze);
        e.summary = summary.unwrap_or(e.analyze);
        Ok(e)
    }

    fn explain_format(&self, d: &DefElem) -> Result<ExplainFormat> {
        let value = node::def_text(d).unwrap_or_default();
        Ok(match value.as_str() {
            "text" => ExplainFormat::Text,
            "json" => ExplainFormat::Json,
            "xml" => ExplainFormat::Xml,
            "yaml" => ExplainFormat::Yaml,
            other => {
                let message =
                    format!("unrecognized value for EXPLAIN option \"format\": \"{other}\"");
                return Err(self.error(State::INVALID_PARAMETER_VALUE, message, d.location));
            }
        })
    }

    fn prepare(&self, s: &protobuf::PrepareStmt) -> Result<Prepare> {
        if s.name.is_empty() {
            let message = "invalid statement name: must not be empty";
            return Err(self.error(INVALID_PSTATEMENT_DEFINITION, message, -1));
        }
        let mut types = Vec::with_capacity(s.argtypes.len());
        for n in node::each(&s.argtypes) {
            let Node::TypeName(t) = n else { return Err(node::missing()) };
            types.push(self.type_name(t)?.oid);
        }
        let inner = need(&s.query)?;
        let node = super::with_stack(super::DEEP_STACK, || inner.clone());
        let source: Arc<str> = Arc::from(self.source);
        let len = source.len();
        let statement = ParsedStatement { node: Some(Box::new(node)), source, start: 0, len };
        Ok(Prepare { name: s.name.clone(), types, statement })
    }

    fn execute(&mut self, s: &protobuf::ExecuteStmt) -> Result<Execute> {
        let mut args: Vec<Expr> = Vec::with_capacity(s.params.len());
        for n in node::each(&s.params) {
            args.push(self.in_clause(Clause::Execute, |b| b.expr(n))?);
        }
        Ok(Execute { name: s.name.clone(), args })
    }

    fn cursor(&mut self, s: &protobuf::DeclareCursorStmt) -> Result<DeclareCursor> {
        let has = |bit: i32| s.options & bit != 0;
        let conflict = |a: &str, b: &str| {
            let message = format!("cannot specify both {a} and {b}");
            self.error(INVALID_CURSOR_DEFINITION, message, -1)
        };
        if has(0x2) && has(0x4) {
            return Err(conflict("SCROLL", "NO SCROLL"));
        }
        if has(0x8) && has(0x10) {
            return Err(conflict("ASENSITIVE", "INSENSITIVE"));
        }
        let Node::SelectStmt(select) = need(&s.query)? else { return Err(node::missing()) };
        let query: Query = self.select(select, true)?;
        let locked = !query.row_marks.is_empty();
        for (bit, what) in [(0x20, "WITH HOLD"), (0x2, "SCROLL"), (0x8, "INSENSITIVE")] {
            if locked && has(bit) {
                let message = format!("DECLARE {what} ... FOR UPDATE is not supported");
                return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, -1));
            }
        }
        Ok(DeclareCursor {
            name: s.portalname.clone(),
            query,
            binary: has(0x1),
            scroll: if has(0x2) { Some(true) } else { has(0x4).then_some(false) },
            insensitive: has(0x8),
            hold: has(0x20),
        })
    }
}

const INVALID_CURSOR_DEFINITION: State = State::from_code("42P11");
const INVALID_PSTATEMENT_DEFINITION: State = State::from_code("42P14");

fn fetch(s: &protobuf::FetchStmt) -> Result<Fetch> {
    use protobuf::FetchDirection as Way;
    let n = s.how_many;
    let turned = n.checked_neg().unwrap_or(i64::MAX);
    let direction = match s.direction() {
        Way::FetchForward if n < 0 => FetchDirection::Backward(turned),
        Way::FetchForward => FetchDirection::Forward(n),
        Way::FetchBackward if n < 0 => FetchDirection::Forward(turned),
        Way::FetchBackward if n == 0 => FetchDirection::Forward(0),
        Way::FetchBackward => FetchDirection::Backward(n),
        Way::FetchAbsolute => FetchDirection::Absolute(n),
        Way::FetchRelative => FetchDirection::Relative(n),
        Way::Undefined => return Err(node::missing()),
    };
    Ok(Fetch { cursor: s.portalname.clone(), direction, is_move: s.ismove })
}

/// ISOLATION LEVEL, READ ONLY, DEFERRABLE.
fn modes(list: &[node::Boxed]) -> Result<TransactionModes> {
    let mut m = TransactionModes::default();
    for d in defs(list) {
        let value = node::def_text(d).unwrap_or_default();
        match d.defname.as_str() {
            "transaction_isolation" => {
                m.isolation = Some(match value.as_str() {
                    "read uncommitted" => IsolationLevel::ReadUncommitted,
                    "read committed" => IsolationLevel::ReadCommitted,
                    "repeatable read" => IsolationLevel::RepeatableRead,
                    "serializable" => IsolationLevel::Serializable,
                    _ => return Err(node::missing()),
                });
            }
            "transaction_read_only" => m.read_only = Some(def_bool(d)?),
            "transaction_deferrable" => m.deferrable = Some(def_bool(d)?),
            other => return Err(SqlError::unsupported(format!("transaction mode {other}"))),
        }
    }
    Ok(m)
}

/// An option's boolean value; without a value it is true.
pub(crate) fn def_bool(d: &DefElem) -> Result<bool> {
    let Some(n) = some(&d.arg) else { return Ok(true) };
    let value = node::value_text(n).unwrap_or_default().to_ascii_lowercase();
    match value.as_str() {
        "true" | "on" | "1" | "yes" => Ok(true),
        "false" | "off" | "0" | "no" => Ok(false),
        _ => Err(SqlError::new(
            State::SYNTAX_ERROR,
            format!("{} requires a Boolean value", d.defname),
        )),
    }
}
