//! ALTER TABLE (and the forms of ALTER INDEX, VIEW, SEQUENCE that share its grammar).

use super::bound::*;
use super::node::{self, Node, need, some};
use super::scope::{Binder, Clause, Scope};
use super::statement::*;
use super::table::{Shape, default_node, merge_attributes, skipping};
use crate::catalog::{ConstraintKind, Identity, RelationKind, TableDef};
use crate::error::{Result, SqlError, State};
use crate::functions::CastContext;
use crate::types::{self, Oid, TypeRef};
use pg_query::protobuf::{AlterTableCmd, AlterTableStmt, AlterTableType, DropBehavior, ObjectType};
use std::sync::Arc;

impl Binder<'_> {
    pub(crate) fn alter_table(&mut self, s: &AlterTableStmt) -> Result<Utility> {
        let kind = match s.objtype() {
            ObjectType::ObjectTable => ObjectKind::Table,
            ObjectType::ObjectIndex => ObjectKind::Index,
            ObjectType::ObjectView => ObjectKind::View,
            ObjectType::ObjectSequence => ObjectKind::Sequence,
            other => {
                let words = other.as_str_name().trim_start_matches("OBJECT_").replace('_', " ");
                return Err(SqlError::unsupported(format!("ALTER {words}")));
            }
        };
        let relation = s.relation.as_ref().ok_or_else(node::missing)?;
        let found = self.relation_of_kind(relation, kind, s.missing_ok, kind.alter_tag())?;
        let oid = match found {
            Ok(oid) => oid,
            Err(nothing) => return Ok(nothing),
        };
        let commands: Vec<&AlterTableCmd> = node::each(&s.cmds)
            .filter_map(|n| match n {
                Node::AlterTableCmd(c) => Some(&**c),
                _ => None,
            })
            .collect();
        if let [only] = commands.as_slice()
            && only.subtype() == AlterTableType::AtChangeOwner
        {
            let owner = self.role(only.newowner.as_ref().ok_or_else(node::missing)?)?;
            let object = ObjectRef { kind, oid, attnum: 0 };
            return Ok(Utility::AlterOwner(AlterOwner { object, owner }));
        }
        let table = match self.cx.catalog.tables.get(&oid) {
            Some(t) if t.kind == RelationKind::Table => t.clone(),
            _ => {
                self.refuse_persistence_of(oid, &commands)?;
                let what = format!("this form of {}", kind.alter_tag());
                return Err(self.unsupported(&what, -1));
            }
        };
        let mut alter =
            AlterTable { table: table.clone(), actions: Vec::new(), notices: Vec::new() };
        let mut shape = Shape::of(&table);
        for c in commands {
            self.alter_command(c, &table, &mut shape, &mut alter)?;
        }
        Ok(Utility::AlterTable(Box::new(alter)))
    }

    /// What has no files of its own is neither logged nor unlogged.
    fn refuse_persistence_of(&self, oid: Oid, commands: &[&AlterTableCmd]) -> Result<()> {
        let action = match commands.first().map(|c| c.subtype()) {
            Some(AlterTableType::AtSetLogged) => "SET LOGGED",
            Some(AlterTableType::AtSetUnLogged) => "SET UNLOGGED",
            _ => return Ok(()),
        };
        let (name, what) =
            match (self.cx.catalog.tables.get(&oid), self.cx.catalog.indexes.get(&oid)) {
                (Some(t), _) if t.kind == RelationKind::View => (&t.name, "views"),
                (None, Some(i)) => (&i.name, "indexes"),
                _ => return Ok(()),
            };
        let message = format!("ALTER action {action} cannot be performed on relation \"{name}\"");
        let detail = format!("This operation is not supported for {what}.");
        Err(self.error(State::WRONG_OBJECT_TYPE, message, -1).detail(detail))
    }

    fn alter_command(
        &mut self,
        c: &AlterTableCmd,
        table: &Arc<TableDef>,
        shape: &mut Shape,
        alter: &mut AlterTable,
    ) -> Result<()> {
        use AlterTableType as Kind;
        let cascade = c.behavior() == DropBehavior::DropCascade;
        let action = match c.subtype() {
            Kind::AtAddColumn => return self.add_column(c, shape, alter),
            Kind::AtDropColumn => {
                match self.altered_column(table, &c.name, c.missing_ok, alter)? {
                    Some(attnum) => {
                        shape.columns[attnum as usize - 1].dropped = true;
                        AlterAction::DropColumn { attnum, cascade }
                    }
                    None => return Ok(()),
                }
            }
            Kind::AtColumnDefault => self.set_default(c, table, shape)?,
            Kind::AtSetNotNull => {
                AlterAction::SetNotNull { attnum: self.need_attnum(table, &c.name)? }
            }
            Kind::AtDropNotNull => self.drop_not_null(table, &c.name)?,
            Kind::AtAlterColumnType => self.set_type(c, table, shape)?,
            Kind::AtSetStatistics => {
                let attnum = self.need_attnum(table, &c.name)?;
                let target = match some(&c.def) {
                    Some(Node::Integer(i)) => i.ival,
                    _ => -1,
                };
                AlterAction::SetStatistics { attnum, target }
            }
            Kind::AtAddConstraint => {
                let Node::Constraint(k) = need(&c.def)? else { return Err(node::missing()) };
                AlterAction::AddConstraint(self.constraint_spec(k, None, shape)?)
            }
            Kind::AtDropConstraint => match self.dropped_constraint(c, table, alter)? {
                true => AlterAction::DropConstraint { name: c.name.clone(), cascade },
                false => return Ok(()),
            },
            Kind::AtValidateConstraint => {
                self.need_constraint(table, &c.name)?;
                AlterAction::ValidateConstraint { name: c.name.clone() }
            }
            Kind::AtSetRelOptions => AlterAction::SetOptions(self.table_options(options(c))?),
            Kind::AtResetRelOptions => AlterAction::ResetOptions(self.option_names(options(c))),
            Kind::AtSetLogged => AlterAction::SetLogged,
            Kind::AtSetUnLogged => AlterAction::SetUnlogged,
            Kind::AtAddIdentity => self.add_identity(c, table, shape)?,
            Kind::AtSetIdentity => self.set_identity(c, table)?,
            Kind::AtDropIdentity => match self.drop_identity(c, table, alter)? {
                Some(action) => action,
                None => return Ok(()),
            },
            other => {
                let words = other.as_str_name().trim_start_matches("AT_");
                return Err(self.unsupported(&format!("ALTER TABLE ... {}", spaced(words)), -1));
            }
        };
        alter.actions.push(action);
        Ok(())
    }

    fn set_default(
        &mut self,
        c: &AlterTableCmd,
        table: &TableDef,
        shape: &Shape,
    ) -> Result<AlterAction> {
        let attnum = self.need_attnum(table, &c.name)?;
        if table.columns[attnum as usize - 1].identity.is_some() {
            let e = self.is_identity(table, &c.name);
            let hint = "Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead.";
            return Err(if c.def.is_none() { e.hint(hint) } else { e });
        }
        let default = match some(&c.def) {
            Some(n) => {
                let ty = table.columns[attnum as usize - 1].ty;
                self.default_expr(n, ty, &c.name, shape)?
            }
            None => None,
        };
        Ok(AlterAction::SetDefault { attnum, default })
    }

    fn need_attnum(&self, table: &TableDef, name: &str) -> Result<i16> {
        match table.column(name) {
            Some(c) => Ok(c.attnum),
            None if super::scope::system_column(name).is_some() => {
                let message = format!("cannot alter system column \"{name}\"");
                Err(self.error(State::FEATURE_NOT_SUPPORTED, message, -1))
            }
            None => Err(self.no_column(table, name, -1)),
        }
    }

    fn altered_column(
        &self,
        table: &TableDef,
        name: &str,
        missing_ok: bool,
        alter: &mut AlterTable,
    ) -> Result<Option<i16>> {
        if missing_ok && table.column(name).is_none() {
            let message =
                format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
            alter.notices.push(skipping(message));
            return Ok(None);
        }
        self.need_attnum(table, name).map(Some)
    }

    fn add_column(
        &mut self,
        c: &AlterTableCmd,
        shape: &mut Shape,
        alter: &mut AlterTable,
    ) -> Result<()> {
        let Node::ColumnDef(def) = need(&c.def)? else { return Err(node::missing()) };
        if shape.position(&def.colname).is_some() {
            let message =
                format!("column \"{}\" of relation \"{}\" already exists", def.colname, shape.name);
            if c.missing_ok {
                alter.notices.push(skipping(message));
                return Ok(());
            }
            return Err(self.error(State::DUPLICATE_COLUMN, message, -1));
        }
        let mut pending = Vec::new();
        let mut spec = self.column_spec(def, shape, &mut pending)?;
        if let Some(n) = default_node(def) {
            spec.default = self.default_expr(n, spec.ty, &def.colname, shape)?;
        }
        let at = shape.columns.len() - 1;
        let mut constraints = Vec::new();
        for (k, column) in merge_attributes(self, pending)? {
            let made = self.constraint_spec(&k, column.as_deref(), shape)?;
            if let ConstraintSpecKind::Primary { columns, .. } = &made.kind {
                spec.not_null |= columns.contains(&at);
            }
            constraints.push(AlterAction::AddConstraint(made));
        }
        alter.actions.push(AlterAction::AddColumn(spec));
        alter.actions.append(&mut constraints);
        Ok(())
    }

    fn drop_not_null(&self, table: &TableDef, name: &str) -> Result<AlterAction> {
        let attnum = self.need_attnum(table, name)?;
        if table.columns[attnum as usize - 1].identity.is_some() {
            return Err(self.is_identity(table, name));
        }
        let in_key = table.constraints.iter().any(|c| {
            matches!(c.kind, ConstraintKind::Primary { .. }) && c.columns.contains(&attnum)
        });
        if in_key {
            let message = format!("column \"{name}\" is in a primary key");
            return Err(self.error(State::INVALID_TABLE_DEFINITION, message, -1));
        }
        Ok(AlterAction::DropNotNull { attnum })
    }

    fn set_type(
        &mut self,
        c: &AlterTableCmd,
        table: &Arc<TableDef>,
        shape: &mut Shape,
    ) -> Result<AlterAction> {
        let attnum = self.need_attnum(table, &c.name)?;
        let at = attnum as usize - 1;
        let Node::ColumnDef(def) = need(&c.def)? else { return Err(node::missing()) };
        let name = def.type_name.as_ref().ok_or_else(node::missing)?;
        let ty = self.quietly(true, |b| b.type_name(name))?;
        self.check_column_type(&c.name, ty, name.location)?;
        let collation = match &def.coll_clause {
            Some(clause) => self.collation(&node::names(&clause.collname), clause.location)?,
            None => types::info(ty.oid).map_or(Oid::INVALID, |t| t.collation),
        };
        let old = table.columns[at].ty;
        let (source, location, explicit) = match some(&def.raw_default) {
            Some(n) => {
                self.scopes.push(Scope::default());
                self.table_scope(table, false)?;
                let e = self.in_clause(Clause::Transform, |b| b.expr(n))?;
                self.scopes.pop();
                (e, node::location(n), true)
            }
            None => {
                let var = Var { level: 0, rte: 0, col: attnum - 1, ty: old };
                (Expr::Var(var), -1, false)
            }
        };
        let using = self.try_coerce(source, ty, CastContext::Assignment, location)?;
        let Some(using) = using else {
            let to = self.type_text(ty.oid);
            let (message, hint) = if explicit {
                (
                    format!(
                        "result of USING clause for column \"{}\" cannot be cast automatically to \
                         type {to}",
                        c.name
                    ),
                    "You might need to add an explicit cast.".to_owned(),
                )
            } else {
                (
                    format!("column \"{}\" cannot be cast automatically to type {to}", c.name),
                    format!(
                        "You might need to specify \"USING {}::{}\".",
                        super::deparse::quote_ident(&c.name),
                        types::format_type(ty.oid, ty.typmod)
                    ),
                )
            };
            return Err(self.error(State::DATATYPE_MISMATCH, message, -1).hint(hint));
        };
        let default = self.retyped_default(table, at, ty, shape)?;
        shape.columns[at].ty = ty;
        Ok(AlterAction::SetType { attnum, ty, collation, using, default })
    }

    /// A column's default as a value of its new type.
    fn retyped_default(
        &mut self,
        table: &Arc<TableDef>,
        at: usize,
        ty: TypeRef,
        shape: &Shape,
    ) -> Result<Option<StoredExpr>> {
        let column = &table.columns[at];
        if column.default.is_none() {
            return Ok(None);
        }
        let e = self.column_default(column)?;
        match self.try_coerce(e, ty, CastContext::Assignment, -1)? {
            Some(e) => Ok(Some(self.stored(e, shape))),
            None => {
                let message = format!(
                    "default for column \"{}\" cannot be cast automatically to type {}",
                    column.name,
                    self.type_text(ty.oid)
                );
                Err(self.error(State::DATATYPE_MISMATCH, message, -1))
            }
        }
    }

    fn need_constraint(&self, table: &TableDef, name: &str) -> Result<()> {
        if table.constraints.iter().any(|k| k.name == name) {
            return Ok(());
        }
        let message =
            format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
        Err(self.error(State::UNDEFINED_OBJECT, message, -1))
    }

    fn dropped_constraint(
        &self,
        c: &AlterTableCmd,
        table: &TableDef,
        alter: &mut AlterTable,
    ) -> Result<bool> {
        match self.need_constraint(table, &c.name) {
            Ok(()) => Ok(true),
            Err(e) if c.missing_ok => {
                alter.notices.push(skipping(e.message().to_owned()));
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    fn add_identity(
        &mut self,
        c: &AlterTableCmd,
        table: &TableDef,
        shape: &mut Shape,
    ) -> Result<AlterAction> {
        let attnum = self.need_attnum(table, &c.name)?;
        let column = &table.columns[attnum as usize - 1];
        let Node::Constraint(k) = need(&c.def)? else { return Err(node::missing()) };
        let (kind, options) = self.identity(k, column.ty, &c.name)?;
        if !column.not_null {
            let message = format!(
                "column \"{}\" of relation \"{}\" must be declared NOT NULL before identity can \
                 be added",
                c.name, table.name
            );
            return Err(self.error(State::OBJECT_NOT_IN_PREREQUISITE_STATE, message, -1));
        }
        if column.identity.is_some() {
            let message = format!(
                "column \"{}\" of relation \"{}\" is already an identity column",
                c.name, table.name
            );
            return Err(self.error(State::OBJECT_NOT_IN_PREREQUISITE_STATE, message, -1));
        }
        if column.default.is_some() {
            let message = format!(
                "column \"{}\" of relation \"{}\" already has a default value",
                c.name, table.name
            );
            return Err(self.error(State::OBJECT_NOT_IN_PREREQUISITE_STATE, message, -1));
        }
        let sequence = self.owned_sequence(shape, &c.name, kind, options);
        Ok(AlterAction::AddIdentity { attnum, sequence })
    }

    fn is_identity(&self, table: &TableDef, column: &str) -> SqlError {
        let message =
            format!("column \"{column}\" of relation \"{}\" is an identity column", table.name);
        self.error(State::SYNTAX_ERROR, message, -1)
    }

    fn need_identity(&self, table: &TableDef, attnum: i16) -> Result<()> {
        let column = &table.columns[attnum as usize - 1];
        if column.identity.is_some() {
            return Ok(());
        }
        let message = format!(
            "column \"{}\" of relation \"{}\" is not an identity column",
            column.name, table.name
        );
        Err(self.error(State::OBJECT_NOT_IN_PREREQUISITE_STATE, message, -1))
    }

    fn drop_identity(
        &self,
        c: &AlterTableCmd,
        table: &TableDef,
        alter: &mut AlterTable,
    ) -> Result<Option<AlterAction>> {
        let attnum = self.need_attnum(table, &c.name)?;
        match self.need_identity(table, attnum) {
            Ok(()) => Ok(Some(AlterAction::DropIdentity { attnum })),
            Err(e) if c.missing_ok => {
                alter.notices.push(skipping(e.message().to_owned()));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// SET GENERATED, SET INCREMENT, RESTART and so on, together.
    fn set_identity(&mut self, c: &AlterTableCmd, table: &TableDef) -> Result<AlterAction> {
        let attnum = self.need_attnum(table, &c.name)?;
        self.need_identity(table, attnum)?;
        let mut identity = None;
        let mut rest = Vec::new();
        for n in options(c) {
            let generated = match n.node.as_ref() {
                Some(Node::DefElem(d)) if d.defname == "generated" => Some(d),
                _ => None,
            };
            let Some(d) = generated else {
                rest.push(n.clone());
                continue;
            };
            if identity.is_some() {
                let message = "conflicting or redundant options";
                return Err(self.error(State::SYNTAX_ERROR, message, d.location));
            }
            let code = match some(&d.arg) {
                Some(Node::Integer(i)) => u8::try_from(i.ival).ok().map(char::from),
                _ => None,
            };
            identity = Some(code.and_then(Identity::of_code).ok_or_else(node::missing)?);
        }
        let (mut options, owned) = self.sequence_options(&rest)?;
        if owned.is_some() {
            return Err(SqlError::new(
                State::FEATURE_NOT_SUPPORTED,
                "cannot change ownership of identity sequence",
            ));
        }
        options.ty = None;
        Ok(AlterAction::SetIdentity { attnum, identity, options })
    }
}

fn options(c: &AlterTableCmd) -> &[node::Boxed] {
    match some(&c.def) {
        Some(Node::List(l)) => &l.items,
        _ => &[],
    }
}

/// `EnableTrig` as words.
fn spaced(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.push(c.to_ascii_uppercase());
    }
    out
}
