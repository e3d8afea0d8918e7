//! CREATE TABLE: columns, defaults, constraints, LIKE.

use super::bound::*;
use super::constraint::Names;
use super::ddl::notice;
use super::deparse;
use super::from::STORED_PATH;
use super::node::{self, Node, need, some};
use super::scope::{Binder, Clause, Scope, system_column};
use super::statement::*;
use crate::catalog::{
    ColumnDef, ConstraintKind, Identity, IndexColumn, IndexDef, Persistence, RelationKind,
    SequenceDef, TableDef,
};
use crate::error::{Result, SqlError, State};
use crate::functions::CastContext;
use crate::types::{self, Datum, Oid, TypeRef};
use pg_query::protobuf::{self, ConstrType, Constraint, CreateStmt};
use std::sync::Arc;

/// A table as far as its definition has been read.
pub(crate) struct Shape {
    pub name: String,
    /// Where it is (None: a temporary schema that does not exist yet).
    pub schema: Option<Oid>,
    /// By position; dropped ones keep theirs.
    pub columns: Vec<RangeColumn>,
    pub persistence: Persistence,
    pub existing: Option<Arc<TableDef>>,
    pub has_primary: bool,
    /// Columns of the primary key and of all unique keys (sorted) that this statement makes.
    pub primary: Option<Vec<usize>>,
    pub keys: Vec<Vec<usize>>,
    pub names: Names,
}

impl Shape {
    /// A table without columns yet.
    fn new(name: &str, schema: Option<Oid>, persistence: Persistence) -> Shape {
        Shape {
            name: name.to_owned(),
            schema,
            columns: Vec::new(),
            persistence,
            existing: None,
            has_primary: false,
            primary: None,
            keys: Vec::new(),
            names: Names { relations: vec![name.to_owned()], constraints: Vec::new() },
        }
    }

    pub(crate) fn of(table: &Arc<TableDef>) -> Shape {
        let column =
            |c: &ColumnDef| RangeColumn { name: c.name.clone(), ty: c.ty, dropped: c.dropped };
        let primary = |c: &Arc<crate::catalog::ConstraintDef>| {
            matches!(c.kind, ConstraintKind::Primary { .. })
        };
        Shape {
            name: table.name.clone(),
            schema: Some(table.schema),
            columns: table.columns.iter().map(column).collect(),
            persistence: table.persistence,
            existing: Some(table.clone()),
            has_primary: table.constraints.iter().any(primary),
            primary: None,
            keys: Vec::new(),
            names: Names::default(),
        }
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| !c.dropped && c.name == name)
    }

    pub(crate) fn column_names(&self) -> Vec<String> {
        self.columns.iter().map(|c| c.name.clone()).collect()
    }
}

impl Binder<'_> {
    /// Runs `f` where the columns of a table being defined are visible as Var(0, 0, col).
    pub(crate) fn over_shape<R>(
        &mut self,
        shape: &Shape,
        f: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let entry = RangeEntry {
            name: shape.name.clone(),
            columns: shape.columns.clone(),
            source: RangeSource::Join,
        };
        self.scopes.push(Scope::default());
        let rte = self.add_rte(entry.clone())?;
        let item = self.item_of(rte, &entry, false);
        self.scope()?.items.push(item);
        let result = f(self);
        self.scopes.pop();
        result
    }

    pub(crate) fn stored(&self, expr: Expr, shape: &Shape) -> StoredExpr {
        let columns = shape.column_names();
        let text = deparse::expr_over(&expr, &shape.name, &columns, self.cx.catalog, STORED_PATH);
        StoredExpr { expr, text }
    }

    // ----- CREATE TABLE.

    pub(crate) fn create_table(&mut self, s: &CreateStmt) -> Result<Utility> {
        let name = s.relation.as_ref().ok_or_else(node::missing)?;
        self.refuse_table_features(s)?;
        let (schema, persistence) = self.creation_target(name)?;
        if self.existing(schema, &name.relname).is_some() {
            if s.if_not_exists {
                let state = State::DUPLICATE_TABLE;
                return Ok(Self::skip_existing("CREATE TABLE", "relation", &name.relname, state));
            }
            return Err(self.already_exists(&name.relname));
        }
        let place = match schema {
            TargetSchema::Named(s) => Some(s),
            TargetSchema::Temporary => self.cx.temp_schema,
        };
        let mut shape = Shape::new(&name.relname, place, persistence);
        let mut table = CreateTable {
            schema,
            name: name.relname.clone(),
            if_not_exists: s.if_not_exists,
            persistence,
            columns: Vec::new(),
            constraints: Vec::new(),
            indexes: Vec::new(),
            options: self.table_options(&s.options)?,
            on_commit: self.on_commit(s.oncommit(), persistence)?,
        };
        let mut pending: Vec<(Constraint, Option<String>)> = Vec::new();
        let mut likes = Vec::new();
        for n in node::each(&s.table_elts) {
            match n {
                Node::ColumnDef(c) => {
                    let column = self.column_spec(c, &mut shape, &mut pending)?;
                    table.columns.push(column);
                }
                Node::TableLikeClause(l) => {
                    let source = self.like_columns(l, &mut shape, &mut table)?;
                    likes.push((l.options, source));
                }
                Node::Constraint(c) => pending.push(((**c).clone(), None)),
                _ => return Err(node::missing()),
            }
        }
        for n in node::each(&s.constraints) {
            if let Node::Constraint(c) = n {
                pending.push(((**c).clone(), None));
            }
        }
        self.bind_defaults(s, &shape, &mut table)?;
        // Foreign keys last: they may refer to the table's own keys.
        let mut pending = merge_attributes(self, pending)?;
        pending.sort_by_key(|(c, _)| c.contype() == ConstrType::ConstrForeign);
        for (c, column) in pending {
            let spec = self.constraint_spec(&c, column.as_deref(), &mut shape)?;
            require_not_null(&spec, &mut table.columns);
            table.constraints.push(spec);
        }
        for (options, source) in likes {
            self.like_constraints(options, &source, &mut shape, &mut table)?;
        }
        Ok(Utility::CreateTable(Box::new(table)))
    }

    fn refuse_table_features(&self, s: &CreateStmt) -> Result<()> {
        let refused = if s.partspec.is_some() {
            "PARTITION BY"
        } else if s.partbound.is_some() {
            "PARTITION OF"
        } else if !s.inh_relations.is_empty() {
            "INHERITS"
        } else if s.of_typename.is_some() {
            "CREATE TABLE OF a type"
        } else {
            return self.refuse_storage(&s.access_method, &s.tablespacename);
        };
        Err(self.unsupported(refused, -1))
    }

    pub(crate) fn refuse_storage(&self, method: &str, tablespace: &str) -> Result<()> {
        if !method.is_empty() && method != "heap" {
            let message = format!("access method \"{method}\" does not exist");
            return Err(self.error(State::UNDEFINED_OBJECT, message, -1));
        }
        if !tablespace.is_empty() && tablespace != "pg_default" {
            return Err(self.unsupported("TABLESPACE", -1));
        }
        Ok(())
    }

    pub(crate) fn on_commit(
        &self,
        action: protobuf::OnCommitAction,
        persistence: Persistence,
    ) -> Result<OnCommit> {
        use protobuf::OnCommitAction as Action;
        let on_commit = match action {
            Action::OncommitDeleteRows => OnCommit::DeleteRows,
            Action::OncommitDrop => OnCommit::Drop,
            Action::OncommitPreserveRows => OnCommit::PreserveRows,
            _ => return Ok(OnCommit::PreserveRows),
        };
        if persistence != Persistence::Temporary {
            let message = "ON COMMIT can only be used on temporary tables";
            return Err(self.error(State::INVALID_TABLE_DEFINITION, message, -1));
        }
        Ok(on_commit)
    }

    // ----- Columns.

    /// A column's definition. Its default waits until all columns are known; its constraints are
    /// added to `pending`.
    pub(crate) fn column_spec(
        &mut self,
        c: &protobuf::ColumnDef,
        shape: &mut Shape,
        pending: &mut Vec<(Constraint, Option<String>)>,
    ) -> Result<ColumnSpec> {
        self.check_new_column(&c.colname, shape)?;
        if !c.compression.is_empty() || !c.storage_name.is_empty() {
            let what = if c.compression.is_empty() { "STORAGE" } else { "COMPRESSION" };
            return Err(self.unsupported(what, c.location));
        }
        let name = c.type_name.as_ref().ok_or_else(node::missing)?;
        let serial = serial_type(&node::names(&name.names));
        if serial.is_some() && !name.array_bounds.is_empty() {
            let message = "array of serial is not implemented";
            return Err(self.error(State::FEATURE_NOT_SUPPORTED, message, name.location));
        }
        let ty = match serial {
            Some(oid) => TypeRef::plain(oid),
            None => self.type_name(name)?,
        };
        self.check_column_type(&c.colname, ty, name.location)?;
        let collation = match &c.coll_clause {
            None => types::info(ty.oid).map_or(Oid::INVALID, |t| t.collation),
            Some(clause) => {
                if !types::info(ty.oid).is_some_and(|t| t.collatable()) {
                    let name = self.type_text(ty.oid);
                    let message = format!("collations are not supported by type {name}");
                    return Err(self.error(State::DATATYPE_MISMATCH, message, clause.location));
                }
                self.collation(&node::names(&clause.collname), clause.location)?
            }
        };
        let mut spec = ColumnSpec {
            name: c.colname.clone(),
            ty,
            collation,
            not_null: c.is_not_null || serial.is_some(),
            default: None,
            sequence: None,
        };
        shape.columns.push(RangeColumn { name: spec.name.clone(), ty, dropped: false });
        if serial.is_some() {
            spec.sequence = Some(self.owned_sequence(
                shape,
                &c.colname,
                OwnedSequenceKind::Serial,
                SequenceOptions { ty: Some(ty.oid), ..SequenceOptions::default() },
            ));
        }
        self.column_constraints(c, &mut spec, shape, pending)?;
        Ok(spec)
    }

    fn check_new_column(&self, name: &str, shape: &Shape) -> Result<()> {
        if shape.position(name).is_some() {
            let message = format!("column \"{name}\" specified more than once");
            return Err(self.error(State::DUPLICATE_COLUMN, message, -1));
        }
        if system_column(name).is_some() {
            let message = format!("column name \"{name}\" conflicts with a system column name");
            return Err(self.error(State::DUPLICATE_COLUMN, message, -1));
        }
        if shape.columns.len() >= 1600 {
            let message = "tables can have at most 1600 columns";
            return Err(self.error(State::TOO_MANY_COLUMNS, message, -1));
        }
        Ok(())
    }

    pub(crate) fn check_column_type(&self, name: &str, ty: TypeRef, location: i32) -> Result<()> {
        match types::info(ty.oid) {
            Some(t) if t.is_pseudo() => {
                let message =
                    format!("column \"{name}\" has pseudo-type {}", self.type_text(ty.oid));
                Err(self.error(State::INVALID_TABLE_DEFINITION, message, -1))
            }
            Some(_) => Ok(()),
            None => Err(self.unsupported("a column of a composite type", location)),
        }
    }

    pub(crate) fn owned_sequence(
        &self,
        shape: &mut Shape,
        column: &str,
        kind: OwnedSequenceKind,
        options: SequenceOptions,
    ) -> OwnedSequence {
        let name = self.choose_relation_name(shape, Some(column), "seq");
        OwnedSequence { name, kind, options }
    }

    fn column_constraints(
        &mut self,
        c: &protobuf::ColumnDef,
        spec: &mut ColumnSpec,
        shape: &mut Shape,
        pending: &mut Vec<(Constraint, Option<String>)>,
    ) -> Result<()> {
        let (mut saw_null, mut saw_not_null, mut saw_default) = (false, c.is_not_null, false);
        let redundant = |b: &Self, what: &str, location: i32| {
            let message =
                format!("{what} for column \"{}\" of table \"{}\"", c.colname, shape.name);
            b.error(State::SYNTAX_ERROR, message, location)
        };
        let mut identity: Option<(OwnedSequenceKind, SequenceOptions)> = None;
        let mut last = c.location;
        for n in node::each(&c.constraints) {
            let Node::Constraint(k) = n else { return Err(node::missing()) };
            last = k.location;
            match k.contype() {
                ConstrType::ConstrNull => saw_null = true,
                ConstrType::ConstrNotnull => saw_not_null = true,
                ConstrType::ConstrDefault => {
                    if saw_default || spec.sequence.is_some() {
                        let what = "multiple default values specified";
                        // A serial's own default, which is the second one, stands nowhere.
                        let at = if saw_default { k.location } else { -1 };
                        return Err(redundant(self, what, at));
                    }
                    saw_default = true;
                }
                ConstrType::ConstrIdentity => {
                    if identity.is_some() {
                        let what = "multiple identity specifications";
                        return Err(redundant(self, what, k.location));
                    }
                    identity = Some(self.identity(k, spec.ty, &c.colname)?);
                }
                ConstrType::ConstrGenerated => {
                    return Err(self.unsupported("a generated column", k.location));
                }
                _ => pending.push(((**k).clone(), Some(c.colname.clone()))),
            }
            if saw_null && saw_not_null {
                let what = "conflicting NULL/NOT NULL declarations";
                return Err(redundant(self, what, k.location));
            }
        }
        if saw_null && (spec.sequence.is_some() || identity.is_some()) {
            let at = if identity.is_some() { c.location } else { -1 };
            return Err(redundant(self, "conflicting NULL/NOT NULL declarations", at));
        }
        if identity.is_some() && (saw_default || spec.sequence.is_some()) {
            let at = if saw_default { last } else { -1 };
            return Err(redundant(self, "both default and identity specified", at));
        }
        spec.not_null |= saw_not_null || identity.is_some();
        if let Some((kind, options)) = identity {
            spec.sequence = Some(self.owned_sequence(shape, &c.colname, kind, options));
        }
        Ok(())
    }

    pub(crate) fn identity(
        &mut self,
        k: &Constraint,
        ty: TypeRef,
        column: &str,
    ) -> Result<(OwnedSequenceKind, SequenceOptions)> {
        if !matches!(ty.oid, Oid::INT2 | Oid::INT4 | Oid::INT8) {
            let message = "identity column type must be smallint, integer, or bigint";
            let _ = column;
            return Err(self.error(State::INVALID_PARAMETER_VALUE, message, -1));
        }
        let (mut options, owned) = self.sequence_options(&k.options)?;
        if owned.is_some() {
            return Err(self.unsupported("OWNED BY of an identity column", k.location));
        }
        options.ty = Some(ty.oid);
        let kind = if k.generated_when == "a" {
            OwnedSequenceKind::IdentityAlways
        } else {
            OwnedSequenceKind::IdentityByDefault
        };
        Ok((kind, options))
    }

    fn bind_defaults(
        &mut self,
        s: &CreateStmt,
        shape: &Shape,
        table: &mut CreateTable,
    ) -> Result<()> {
        for n in node::each(&s.table_elts) {
            let Node::ColumnDef(c) = n else { continue };
            let Some(n) = default_node(c) else { continue };
            let at = shape.position(&c.colname).ok_or_else(node::missing)?;
            let ty = table.columns[at].ty;
            table.columns[at].default = self.default_expr(n, ty, &c.colname, shape)?;
        }
        Ok(())
    }

    /// A DEFAULT clause for a column; NULL is none.
    pub(crate) fn default_expr(
        &mut self,
        n: &Node,
        ty: TypeRef,
        column: &str,
        shape: &Shape,
    ) -> Result<Option<StoredExpr>> {
        // ALTER TABLE's errors about expressions have no position.
        self.quietly(shape.existing.is_some(), |b| b.bound_default(n, ty, column, shape))
    }

    fn bound_default(
        &mut self,
        n: &Node,
        ty: TypeRef,
        column: &str,
        shape: &Shape,
    ) -> Result<Option<StoredExpr>> {
        let location = node::location(n);
        let e = self.in_clause(Clause::ColumnDefault, |b| b.expr(n))?;
        let from = e.ty().oid;
        // The text shows what was written, with literals typed; the cast to the column is implied.
        let shown = if from == Oid::UNKNOWN {
            self.coerce(e.clone(), TypeRef::plain(ty.oid), CastContext::Assignment, location)?
        } else {
            e.clone()
        };
        let Some(expr) = self.try_coerce(e, ty, CastContext::Assignment, location)? else {
            let message = format!(
                "column \"{column}\" is of type {} but default expression is of type {}",
                self.type_text(ty.oid),
                self.type_text(from)
            );
            return Err(self
                .error(State::DATATYPE_MISMATCH, message, -1)
                .hint("You will need to rewrite or cast the expression."));
        };
        if matches!(expr, Expr::Const { value: Datum::Null, .. }) {
            return Ok(None);
        }
        let text = self.stored(shown, shape).text;
        Ok(Some(StoredExpr { expr, text }))
    }

    // ----- LIKE.

    fn like_columns(
        &mut self,
        l: &protobuf::TableLikeClause,
        shape: &mut Shape,
        table: &mut CreateTable,
    ) -> Result<Arc<TableDef>> {
        let source = self.range_table(l.relation.as_ref().ok_or_else(node::missing)?)?;
        if !matches!(source.kind, RelationKind::Table | RelationKind::View) {
            let message = format!("relation \"{}\" is invalid in LIKE clause", source.name);
            return Err(self.error(State::WRONG_OBJECT_TYPE, message, -1));
        }
        for c in source.live_columns() {
            self.check_new_column(&c.name, shape)?;
            self.check_column_type(&c.name, c.ty, -1)?;
            let column = RangeColumn { name: c.name.clone(), ty: c.ty, dropped: false };
            shape.columns.push(column);
            let default = match &c.default {
                Some(text) if l.options & LIKE_DEFAULTS != 0 && c.identity.is_none() => {
                    let expr = self.column_default(c)?;
                    Some(StoredExpr { expr, text: text.clone() })
                }
                _ => None,
            };
            let sequence = match c.identity {
                Some(identity) if l.options & LIKE_IDENTITY != 0 => {
                    let (kind, options) = self.like_identity(&source, c.attnum, identity);
                    Some(self.owned_sequence(shape, &c.name, kind, options))
                }
                _ => None,
            };
            table.columns.push(ColumnSpec {
                name: c.name.clone(),
                ty: c.ty,
                collation: c.collation,
                not_null: c.not_null,
                default,
                sequence,
            });
        }
        Ok(source)
    }

    /// The options of an identity column's sequence, for another one like it.
    fn like_identity(
        &self,
        source: &TableDef,
        attnum: i16,
        identity: Identity,
    ) -> (OwnedSequenceKind, SequenceOptions) {
        let kind = match identity {
            Identity::Always => OwnedSequenceKind::IdentityAlways,
            Identity::ByDefault => OwnedSequenceKind::IdentityByDefault,
        };
        let owned = |s: &SequenceDef| {
            s.owner.is_some_and(|o| o.identity && (o.table, o.attnum) == (source.oid, attnum))
        };
        let mut sequences = self.cx.catalog.tables.values().filter_map(|t| t.sequence);
        let Some(s) = sequences.find(owned) else { return (kind, SequenceOptions::default()) };
        let options = SequenceOptions {
            ty: Some(s.ty),
            start: Some(s.start),
            increment: Some(s.increment),
            min: Some(Some(s.min)),
            max: Some(Some(s.max)),
            cache: Some(s.cache),
            cycle: Some(s.cycle),
            restart: None,
        };
        (kind, options)
    }

    fn like_constraints(
        &mut self,
        options: u32,
        source: &Arc<TableDef>,
        shape: &mut Shape,
        table: &mut CreateTable,
    ) -> Result<()> {
        for c in &source.constraints {
            if let ConstraintKind::Check { expr } = &c.kind
                && options & LIKE_CONSTRAINTS != 0
            {
                let spec = self.like_check(expr, &c.name, shape)?;
                table.constraints.push(spec);
            }
        }
        if options & LIKE_INDEXES == 0 {
            return Ok(());
        }
        for index in &source.indexes {
            self.like_index(source, index, shape, table)?;
        }
        Ok(())
    }

    fn like_index(
        &mut self,
        source: &Arc<TableDef>,
        index: &IndexDef,
        shape: &mut Shape,
        table: &mut CreateTable,
    ) -> Result<()> {
        if index.columns.iter().any(|c| c.expr.is_some()) || index.predicate.is_some() {
            return Err(self.unsupported("LIKE INCLUDING an index on expressions", -1));
        }
        let mut columns = Vec::with_capacity(index.columns.len());
        for c in &index.columns {
            let name = source.columns.get(c.attnum as usize - 1).map(|c| c.name.as_str());
            columns.push(name.and_then(|n| shape.position(n)).ok_or_else(node::missing)?);
        }
        let include = columns.split_off(index.key_columns.min(columns.len()));
        let list: Vec<String> = columns.iter().map(|i| shape.columns[*i].name.clone()).collect();
        let list = list.join("_");
        let constrained = source.constraints.iter().any(|c| match &c.kind {
            ConstraintKind::Primary { index: i } | ConstraintKind::Unique { index: i } => {
                *i == index.oid
            }
            _ => false,
        });
        if !constrained {
            let name = self.choose_relation_name(shape, Some(&list), "idx");
            table.indexes.push(copied_index(index, name, &columns, &include, shape));
            return Ok(());
        }
        let options = Vec::new();
        let (name, kind) = if index.primary {
            shape.has_primary = true;
            let name = self.choose_relation_name(shape, None, "pkey");
            (name, ConstraintSpecKind::Primary { columns, include, options })
        } else {
            let name = self.choose_relation_name(shape, Some(&list), "key");
            let nulls_not_distinct = index.nulls_not_distinct;
            (name, ConstraintSpecKind::Unique { columns, include, nulls_not_distinct, options })
        };
        let spec = ConstraintSpec {
            name,
            kind,
            deferrable: !index.immediate,
            initially_deferred: false,
            not_valid: false,
        };
        require_not_null(&spec, &mut table.columns);
        table.constraints.push(spec);
        Ok(())
    }

    fn like_check(&mut self, text: &str, name: &str, shape: &Shape) -> Result<ConstraintSpec> {
        let sql = format!("SELECT {text}");
        let parsed = super::parse(&sql)?;
        let node = parsed.first().and_then(|p| p.node.as_deref());
        let Some(Node::SelectStmt(s)) = node else { return Err(node::missing()) };
        let Some(Node::ResTarget(t)) = node::each(&s.target_list).next() else {
            return Err(node::missing());
        };
        let value = need(&t.val)?;
        let expr = self.with_stored(&sql, |b| {
            b.over_shape(shape, |b| b.in_clause(Clause::Check, |b| b.expr(value)))
        })?;
        let columns = super::constraint::read_columns(&expr);
        let check = self.stored(expr, shape);
        Ok(ConstraintSpec {
            name: name.to_owned(),
            kind: ConstraintSpecKind::Check { check, columns, no_inherit: false },
            deferrable: false,
            initially_deferred: false,
            not_valid: false,
        })
    }
}

const LIKE_CONSTRAINTS: u32 = 1 << 2;
const LIKE_DEFAULTS: u32 = 1 << 3;
const LIKE_IDENTITY: u32 = 1 << 5;
const LIKE_INDEXES: u32 = 1 << 6;

/// A plain index like another table's.
fn copied_index(
    index: &IndexDef,
    name: String,
    columns: &[usize],
    include: &[usize],
    shape: &Shape,
) -> IndexSpec {
    let column = |(c, at): (&IndexColumn, &usize)| IndexColumnSpec {
        attnum: Some(*at as i16 + 1),
        expr: None,
        ty: c.ty,
        collation: types::info(c.ty.oid).map_or(Oid::INVALID, |t| t.collation),
        descending: c.descending,
        nulls_first: c.nulls_first,
        name: shape.columns[*at].name.clone(),
    };
    IndexSpec {
        name,
        unique: index.unique,
        nulls_not_distinct: index.nulls_not_distinct,
        columns: index.columns.iter().zip(columns).map(column).collect(),
        include: include.iter().map(|i| *i as i16 + 1).collect(),
        predicate: None,
        options: Vec::new(),
    }
}

/// The expression of a column's DEFAULT.
pub(crate) fn default_node(c: &protobuf::ColumnDef) -> Option<&Node> {
    let from_constraint = node::each(&c.constraints).find_map(|n| match n {
        Node::Constraint(k) if k.contype() == ConstrType::ConstrDefault => some(&k.raw_expr),
        _ => None,
    });
    from_constraint.or_else(|| some(&c.raw_default))
}

fn serial_type(names: &[&str]) -> Option<Oid> {
    match names {
        ["serial" | "serial4"] => Some(Oid::INT4),
        ["bigserial" | "serial8"] => Some(Oid::INT8),
        ["smallserial" | "serial2"] => Some(Oid::INT2),
        _ => None,
    }
}

/// Columns of a primary key are NOT NULL.
pub(crate) fn require_not_null(spec: &ConstraintSpec, columns: &mut [ColumnSpec]) {
    if let ConstraintSpecKind::Primary { columns: key, .. } = &spec.kind {
        for i in key {
            if let Some(c) = columns.get_mut(*i) {
                c.not_null = true;
            }
        }
    }
}

/// DEFERRABLE and the like are nodes of their own after a column constraint: folds them into it.
pub(crate) fn merge_attributes(
    b: &Binder<'_>,
    list: Vec<(Constraint, Option<String>)>,
) -> Result<Vec<(Constraint, Option<String>)>> {
    let mut out: Vec<(Constraint, Option<String>)> = Vec::with_capacity(list.len());
    for (c, column) in list {
        let kind = c.contype();
        let attribute = matches!(
            kind,
            ConstrType::ConstrAttrDeferrable
                | ConstrType::ConstrAttrNotDeferrable
                | ConstrType::ConstrAttrDeferred
                | ConstrType::ConstrAttrImmediate
        );
        if matches!(kind, ConstrType::ConstrAttrEnforced | ConstrType::ConstrAttrNotEnforced) {
            return Err(SqlError::unsupported("ENFORCED"));
        }
        if !attribute {
            out.push((c, column));
            continue;
        }
        let location = c.location;
        let misplaced = || b.error(State::SYNTAX_ERROR, "misplaced DEFERRABLE clause", location);
        let Some((last, _)) = out.last_mut() else { return Err(misplaced()) };
        if !matches!(
            last.contype(),
            ConstrType::ConstrPrimary | ConstrType::ConstrUnique | ConstrType::ConstrForeign
        ) {
            return Err(misplaced());
        }
        match kind {
            ConstrType::ConstrAttrDeferrable => last.deferrable = true,
            ConstrType::ConstrAttrNotDeferrable => last.deferrable = false,
            ConstrType::ConstrAttrDeferred => {
                last.deferrable = true;
                last.initdeferred = true;
            }
            _ => last.initdeferred = false,
        }
    }
    Ok(out)
}

pub(crate) fn skipping(message: String) -> SqlError {
    notice(State::SUCCESSFUL_COMPLETION, message + ", skipping")
}
