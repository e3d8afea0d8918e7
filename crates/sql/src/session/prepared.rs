//! Prepared statements: parsed once, bound and planned for a version of the catalog.
//!
//! ```text
//!   text --parse--> ParsedStatement --bind--> Statement --plan--> StatementPlan
//!                        |                        '------ kept with the catalog's version and
//!                        '-- kept for ever                the search path; made anew when stale
//! ```
//!
//! A plan that runs is kept with its operators, so that running it again allocates next to
//! nothing ([`Prepared::take_idle`]).

use super::Session;
use super::api::ColumnDesc;
use super::around::Around;
use crate::analyze::statement::{ParamTypes, ParsedStatement, Statement, Utility};
use crate::analyze::{self, bound::RangeEntry};
use crate::catalog::{CatalogSnapshot, IndexDef, TableDef, temp};
use crate::error::{Result, SqlError, State};
use crate::exec::run::Running;
use crate::functions::FnContext;
use crate::plan::{self, IndexParts, PlanEnv, StatementPlan};
use crate::types::{Oid, TypeRef};
use inkling_storage::ids::Fork;
use parking_lot::Mutex;
use std::sync::Arc;

/// Estimated cost (sequential pages) from which a statement counts as long: some milliseconds.
const LONG_COST: f64 = 2000.0;

/// A short statement's tables are measured once in so many uses.
const LOOK_AT_SIZES: u32 = 16;

/// What a statement is after binding and planning.
pub(super) enum Bound {
    Planned(Arc<StatementPlan>),
    Utility(Arc<Utility>),
    /// An empty query string.
    Empty,
}

impl Bound {
    fn share(&self) -> Bound {
        match self {
            Bound::Planned(p) => Bound::Planned(Arc::clone(p)),
            Bound::Utility(u) => Bound::Utility(Arc::clone(u)),
            Bound::Empty => Bound::Empty,
        }
    }
}

struct Current {
    bound: Bound,
    /// See [`Prepared::is_long`].
    long: bool,
    /// The tables' lengths, in pages, that the plan was chosen for.
    sizes: Box<[u32]>,
    uses: u32,
    catalog_version: u64,
    search_path: Vec<Oid>,
    /// Operators of an earlier run, ready to be run again.
    idle: Option<Box<Running>>,
}

impl Current {
    fn new(bound: Bound, catalog: &CatalogSnapshot, around: &Around) -> Current {
        let long = match &bound {
            Bound::Planned(plan) => plan.cost() > LONG_COST || plan.is_unpredictable(),
            Bound::Utility(u) => is_long_utility(u),
            Bound::Empty => false,
        };
        let sizes = match &bound {
            Bound::Planned(plan) => plan.tables.iter().map(|(t, _)| pages(around, t)).collect(),
            _ => Box::default(),
        };
        let (catalog_version, search_path) = (catalog.version, around.search_path());
        Current { bound, long, sizes, uses: 0, catalog_version, search_path, idle: None }
    }

    /// Whether no table has outgrown the plan, which may have been made when it was empty.
    fn fits(&mut self, around: &Around) -> bool {
        let Bound::Planned(plan) = &self.bound else { return true };
        self.uses = self.uses.wrapping_add(1);
        if !self.long && !self.uses.is_multiple_of(LOOK_AT_SIZES) {
            return true;
        }
        let mut tables = plan.tables.iter().zip(&self.sizes);
        tables.all(|((table, _), then)| pages(around, table) <= then.saturating_mul(2).max(16))
    }
}

/// A table's length; a system table's matters to no plan that is kept.
fn pages(around: &Around, table: &TableDef) -> u32 {
    match table.schema == Oid::PG_CATALOG_SCHEMA {
        true => 0,
        false => around.db.engine.pool.block_count(table.rel, Fork::Main).unwrap_or(0),
    }
}

fn is_long_utility(utility: &Utility) -> bool {
    matches!(
        utility,
        Utility::Vacuum(_)
            | Utility::CreateIndex(_)
            | Utility::AlterTable(_)
            | Utility::CreateTableAs(_)
            | Utility::Reindex(_)
            | Utility::Checkpoint
            | Utility::Truncate(_)
            | Utility::Drop(_)
            | Utility::Copy(_)
            | Utility::Explain(_)
            | Utility::Fetch(_)
            | Utility::Execute(_)
    )
}

/// A statement that was prepared, under a name or for one execution.
pub struct Prepared {
    parsed: Option<ParsedStatement>,
    params: Vec<Oid>,
    columns: Option<Vec<ColumnDesc>>,
    /// The columns' types; empty when it returns no rows.
    pub(super) types: Arc<[TypeRef]>,
    current: Mutex<Current>,
}

impl Prepared {
    /// The types of `$1`, `$2`, ...
    pub fn params(&self) -> &[Oid] {
        &self.params
    }

    /// The columns of its rows; `None` when it returns none.
    pub fn columns(&self) -> Option<&[ColumnDesc]> {
        self.columns.as_deref()
    }

    /// The statement's text.
    pub fn text(&self) -> &str {
        self.parsed.as_ref().map_or("", ParsedStatement::text)
    }

    /// Work that may keep its thread for long: the driver should not run it among short
    /// statements.
    pub fn is_long(&self) -> bool {
        self.current.lock().long
    }

    pub(super) fn tells_columns(&self) -> bool {
        match &self.current.lock().bound {
            Bound::Utility(u) => matches!(**u, Utility::Execute(_) | Utility::Fetch(_)),
            _ => false,
        }
    }

    /// Ends a transaction block, so a failed one lets it through.
    pub(super) fn ends_transaction(&self) -> bool {
        match &self.current.lock().bound {
            Bound::Utility(u) => matches!(
                **u,
                Utility::Commit { .. }
                    | Utility::Rollback { .. }
                    | Utility::RollbackTo(_)
                    | Utility::PrepareTransaction(_)
            ),
            _ => false,
        }
    }

    pub(super) fn bound(&self) -> Bound {
        self.current.lock().bound.share()
    }

    /// The operators of an earlier run of the current plan.
    pub(super) fn take_idle(&self) -> Option<Box<Running>> {
        self.current.lock().idle.take()
    }

    /// Keeps a finished run's operators, unless the plan has changed meanwhile.
    pub(super) fn keep_idle(&self, plan: &Arc<StatementPlan>, running: Box<Running>) {
        let mut current = self.current.lock();
        if let Bound::Planned(now) = &current.bound
            && Arc::ptr_eq(now, plan)
        {
            current.idle = Some(running);
        }
    }
}

impl Session {
    /// The statements of a query string.
    pub fn parse_statements(&self, sql: &str) -> Result<Vec<ParsedStatement>> {
        let statements = analyze::parse(sql)?;
        self.in_string.set(statements.len() > 1);
        Ok(statements)
    }

    /// Prepares a statement and keeps it under `name`; the unnamed one is replaced.
    pub fn prepare(&mut self, name: &str, sql: &str, types: &[Oid]) -> Result<()> {
        if !name.is_empty() && self.statements.contains_key(name) {
            return Err(SqlError::new(
                State::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        let prepared = self.recall_or_prepare(sql, types)?;
        self.statements.insert(name.to_owned(), prepared);
        Ok(())
    }

    /// Prepares the one statement of a text whose parameters have these types, as far as known.
    pub(super) fn prepare_text(&mut self, sql: &str, types: &[Oid]) -> Result<Arc<Prepared>> {
        let mut parsed = self.parse_statements(sql)?;
        if parsed.len() > 1 {
            return Err(SqlError::new(
                State::SYNTAX_ERROR,
                "cannot insert multiple commands into a prepared statement",
            ));
        }
        self.prepare_parsed(parsed.pop(), ParamTypes::variable(types.to_vec()))
    }

    /// Prepares one parsed statement (`None`: an empty query) without keeping it by name.
    pub fn prepare_parsed(
        &mut self,
        parsed: Option<ParsedStatement>,
        mut params: ParamTypes,
    ) -> Result<Arc<Prepared>> {
        let Some(parsed) = parsed else { return Ok(Arc::new(self.empty_statement())) };
        if self.block == super::block::Block::Failed && !parsed.ends_transaction() {
            self.check_not_failed()?;
        }
        if temp::is_mentioned(parsed.source()) {
            self.around.db.catalog.tell_temporary();
        }
        let catalog = self.catalog()?;
        let statement = self
            .around
            .with_bind_context(&catalog, |cx| analyze::bind(cx, &parsed, &mut params))?;
        let columns = self.describe(&statement)?;
        let bound = self.plan(&catalog, statement)?;
        Ok(Arc::new(Prepared {
            parsed: Some(parsed),
            params: params.types().to_vec(),
            types: column_types(&columns),
            columns,
            current: Mutex::new(Current::new(bound, &catalog, &self.around)),
        }))
    }

    fn empty_statement(&self) -> Prepared {
        Prepared {
            parsed: None,
            params: Vec::new(),
            types: Arc::new([]),
            columns: None,
            current: Mutex::new(Current {
                bound: Bound::Empty,
                long: false,
                sizes: Box::default(),
                uses: 0,
                catalog_version: 0,
                search_path: Vec::new(),
                idle: None,
            }),
        }
    }

    /// The columns of a statement's rows, EXECUTE's and FETCH's included.
    fn describe(&self, statement: &Statement) -> Result<Option<Vec<ColumnDesc>>> {
        match statement {
            Statement::Utility(Utility::Execute(e)) => {
                Ok(self.statement(&e.name)?.columns().map(<[ColumnDesc]>::to_vec))
            }
            Statement::Utility(Utility::Fetch(f)) if !f.is_move => {
                let portal = self.portals.get(&f.cursor);
                Ok(portal.and_then(|p| p.columns().map(<[ColumnDesc]>::to_vec)))
            }
            other => Ok(other.columns().map(|columns| {
                columns
                    .into_iter()
                    .map(|c| ColumnDesc {
                        name: c.name,
                        ty: c.ty,
                        table: c.table,
                        attnum: c.attnum,
                    })
                    .collect()
            })),
        }
    }

    fn plan(&self, catalog: &Arc<CatalogSnapshot>, statement: Statement) -> Result<Bound> {
        match statement {
            Statement::Utility(utility) => Ok(Bound::Utility(Arc::new(utility))),
            query => {
                let env = SessionPlanEnv::new(&self.around, catalog);
                Ok(Bound::Planned(Arc::new(plan::plan_statement(&env, &query)?)))
            }
        }
    }

    /// Plans a bound query that is run once.
    pub(super) fn plan_query(&mut self, statement: &Statement) -> Result<StatementPlan> {
        let catalog = self.catalog()?;
        let env = SessionPlanEnv::new(&self.around, &catalog);
        plan::plan_statement(&env, statement)
    }

    /// A cursor's query, bound already.
    pub(super) fn prepare_query(&mut self, statement: Statement) -> Result<Prepared> {
        let catalog = self.catalog()?;
        let columns = self.describe(&statement)?;
        let bound = self.plan(&catalog, statement)?;
        Ok(Prepared {
            types: column_types(&columns),
            columns,
            current: Mutex::new(Current::new(bound, &catalog, &self.around)),
            ..self.empty_statement()
        })
    }

    /// Plans a query for EXPLAIN, with the texts that it shows.
    pub(super) fn plan_for_explain(&mut self, statement: &Statement) -> Result<StatementPlan> {
        let catalog = self.catalog()?;
        let env = SessionPlanEnv { around: &self.around, catalog: &catalog, explain: true };
        plan::plan_statement(&env, statement)
    }

    /// Binds and plans anew when the catalog or the search path changed since, or a table grew.
    pub(super) fn revalidate(&mut self, prepared: &Prepared) -> Result<()> {
        let Some(parsed) = &prepared.parsed else { return Ok(()) };
        self.refresh_catalog()?;
        let version = self.around.catalog_version();
        {
            let mut current = prepared.current.lock();
            let same_catalog =
                current.catalog_version == version && version != CatalogSnapshot::OWN;
            if same_catalog
                && self.around.is_path(&current.search_path)
                && current.fits(&self.around)
            {
                return Ok(());
            }
        }
        let catalog = self.catalog()?;
        let mut params = ParamTypes::fixed(prepared.params.clone());
        let statement =
            self.around.with_bind_context(&catalog, |cx| analyze::bind(cx, parsed, &mut params))?;
        if !same_columns(&self.describe(&statement)?, &prepared.columns) {
            return Err(SqlError::new(
                State::FEATURE_NOT_SUPPORTED,
                "cached plan must not change result type",
            ));
        }
        let bound = self.plan(&catalog, statement)?;
        *prepared.current.lock() = Current::new(bound, &catalog, &self.around);
        Ok(())
    }

    /// The prepared statement of this name.
    pub fn statement(&self, name: &str) -> Result<Arc<Prepared>> {
        self.statements.get(name).cloned().ok_or_else(|| super::unknown_statement(name))
    }

    /// Forgets a prepared statement; one that is not there is no error (the protocol's Close).
    pub fn close_statement(&mut self, name: &str) -> bool {
        self.statements.remove(name).is_some()
    }
}

fn column_types(columns: &Option<Vec<ColumnDesc>>) -> Arc<[TypeRef]> {
    columns.iter().flatten().map(|c| c.ty).collect()
}

fn same_columns(a: &Option<Vec<ColumnDesc>>, b: &Option<Vec<ColumnDesc>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.iter().map(|c| c.ty).eq(b.iter().map(|c| c.ty)),
        (None, None) => true,
        _ => false,
    }
}

/// What the planner asks of the session.
pub(super) struct SessionPlanEnv<'a> {
    around: &'a Around,
    catalog: &'a Arc<CatalogSnapshot>,
    explain: bool,
}

impl<'a> SessionPlanEnv<'a> {
    pub fn new(around: &'a Around, catalog: &'a Arc<CatalogSnapshot>) -> Self {
        SessionPlanEnv { around, catalog, explain: false }
    }
}

impl PlanEnv for SessionPlanEnv<'_> {
    fn functions(&self) -> &dyn FnContext {
        self.around
    }

    fn size(&self, table: &TableDef) -> (f64, f64) {
        let pool = &self.around.db.engine.pool;
        let pages = pool.block_count(table.rel, Fork::Main).map_or(0.0, f64::from);
        if table.relpages > 0 && table.reltuples >= 0.0 {
            // The density that was measured, at the size of today.
            return (
                pages,
                (f64::from(table.reltuples) / f64::from(table.relpages) * pages).round(),
            );
        }
        let width: f64 = table
            .live_columns()
            .map(|c| crate::types::info(c.ty.oid).map_or(32.0, |t| f64::from(t.len.max(4))))
            .sum();
        // As PostgreSQL does for a table that was never vacuumed: at least ten pages.
        let pages_assumed = if table.relpages == 0 { pages.max(10.0) } else { pages };
        (pages_assumed, (pages_assumed * 8152.0 / (width + 28.0)).floor().max(1.0))
    }

    fn index_parts(&self, table: &Arc<TableDef>, index: &IndexDef) -> Result<Arc<IndexParts>> {
        let bind = |text: &String| {
            self.around
                .with_bind_context(self.catalog, |cx| analyze::bind_stored_expr(cx, table, text))
        };
        let exprs = index
            .columns
            .iter()
            .map(|c| c.expr.as_ref().map(bind).transpose())
            .collect::<Result<Vec<_>>>()?;
        let predicate = index.predicate.as_ref().map(bind).transpose()?;
        Ok(Arc::new(IndexParts { exprs, predicate }))
    }

    fn relation(&self, oid: Oid) -> Option<Arc<TableDef>> {
        self.catalog.table(oid).cloned()
    }

    fn text(&self, e: &analyze::bound::Expr, levels: &[Vec<RangeEntry>]) -> Option<Box<str>> {
        self.explain.then(|| analyze::deparse::expr_in(e, levels, self.catalog).into())
    }
}
