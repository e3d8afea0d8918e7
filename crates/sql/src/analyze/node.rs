//! Small conveniences over the grammar's protobuf nodes.
//!
//! The nodes are generated code in which every child is optional and every enum an integer; the
//! functions here give names, texts, options and locations without repeating that.

use crate::error::{Result, SqlError};
pub(crate) use pg_query::NodeEnum as Node;
use pg_query::protobuf;
pub(crate) use pg_query::protobuf::Node as Boxed;

/// The node inside, if there is one.
pub(crate) fn some(node: &Option<Box<Boxed>>) -> Option<&Node> {
    node.as_ref()?.node.as_ref()
}

/// The node inside, which the grammar guarantees.
pub(crate) fn need(node: &Option<Box<Boxed>>) -> Result<&Node> {
    some(node).ok_or_else(missing)
}

pub(crate) fn missing() -> SqlError {
    SqlError::internal("the syntax tree lacks a node")
}

/// The list's nodes, holes left out.
pub(crate) fn each(list: &[Boxed]) -> impl Iterator<Item = &Node> {
    list.iter().filter_map(|n| n.node.as_ref())
}

/// A String node's text.
pub(crate) fn text(node: &Node) -> Option<&str> {
    match node {
        Node::String(s) => Some(&s.sval),
        _ => None,
    }
}

/// The texts of a list of String nodes (a qualified name).
pub(crate) fn names(list: &[Boxed]) -> Vec<&str> {
    each(list).filter_map(text).collect()
}

pub(crate) fn owned_names(list: &[Boxed]) -> Vec<String> {
    names(list).into_iter().map(str::to_owned).collect()
}

/// (schema, name) of a qualified name; a database in front is dropped.
pub(crate) fn qualified<'a>(names: &[&'a str]) -> (Option<&'a str>, &'a str) {
    match names {
        [.., schema, name] => (Some(schema), name),
        [name] => (None, name),
        [] => (None, ""),
    }
}

/// The text of a DefElem's argument, however it is spelled.
pub(crate) fn def_text(def: &protobuf::DefElem) -> Option<String> {
    value_text(some(&def.arg)?)
}

pub(crate) fn value_text(node: &Node) -> Option<String> {
    use protobuf::a_const::Val;
    Some(match node {
        Node::String(s) => s.sval.clone(),
        Node::Integer(i) => i.ival.to_string(),
        Node::Float(f) => f.fval.clone(),
        Node::Boolean(b) => if b.boolval { "true" } else { "false" }.into(),
        Node::AStar(_) => "*".into(),
        Node::TypeName(t) => names(&t.names).last().map(|s| (*s).to_owned())?,
        Node::AConst(c) => match c.val.as_ref()? {
            Val::Ival(i) => i.ival.to_string(),
            Val::Fval(f) => f.fval.clone(),
            Val::Boolval(b) => if b.boolval { "true" } else { "false" }.into(),
            Val::Sval(s) => s.sval.clone(),
            Val::Bsval(b) => b.bsval.clone(),
        },
        Node::List(l) => names(&l.items).join("."),
        _ => return None,
    })
}

/// Byte offset of an expression's first token; negative when unknown.
pub(crate) fn location(node: &Node) -> i32 {
    match node {
        Node::ColumnRef(n) => n.location,
        Node::ParamRef(n) => n.location,
        Node::AConst(n) => n.location,
        Node::AExpr(n) => leftmost(n.location, some(&n.lexpr)),
        Node::FuncCall(n) => n.location,
        Node::TypeCast(n) => leftmost_of(some(&n.arg), n.location, n.type_name.as_ref()),
        Node::TypeName(n) => n.location,
        Node::SubLink(n) => leftmost(n.location, some(&n.testexpr)),
        Node::CaseExpr(n) => n.location,
        Node::CoalesceExpr(n) => n.location,
        Node::MinMaxExpr(n) => n.location,
        Node::NullTest(n) => leftmost(n.location, some(&n.arg)),
        Node::BooleanTest(n) => leftmost(n.location, some(&n.arg)),
        Node::BoolExpr(n) => leftmost(n.location, each(&n.args).next()),
        Node::AArrayExpr(n) => n.location,
        Node::AIndirection(n) => some(&n.arg).map_or(-1, location),
        Node::RowExpr(n) => n.location,
        Node::SqlvalueFunction(n) => n.location,
        Node::CollateClause(n) => some(&n.arg).map_or(n.location, location),
        Node::ResTarget(n) => n.location,
        Node::SetToDefault(n) => n.location,
        Node::RangeVar(n) => n.location,
        Node::GroupingFunc(n) => n.location,
        Node::SortBy(n) => some(&n.node).map_or(n.location, location),
        Node::NamedArgExpr(n) => n.location,
        Node::DefElem(n) => n.location,
        Node::Constraint(n) => n.location,
        Node::ColumnDef(n) => n.location,
        Node::MultiAssignRef(n) => some(&n.source).map_or(-1, location),
        Node::List(l) => each(&l.items).next().map_or(-1, location),
        Node::SelectStmt(s) => each(&s.target_list).next().map_or(-1, location),
        Node::CommonTableExpr(c) => c.location,
        Node::GroupingSet(g) => g.location,
        _ => -1,
    }
}

fn leftmost(own: i32, left: Option<&Node>) -> i32 {
    let left = left.map_or(-1, location);
    if left >= 0 && (own < 0 || left < own) { left } else { own }
}

/// A cast starts at its argument or at its type's name, whichever is written first.
fn leftmost_of(arg: Option<&Node>, own: i32, ty: Option<&protobuf::TypeName>) -> i32 {
    leftmost_pos(leftmost(own, arg), ty.map_or(-1, |t| t.location))
}

fn leftmost_pos(a: i32, b: i32) -> i32 {
    match (a >= 0, b >= 0) {
        (true, true) => a.min(b),
        (true, false) => a,
        _ => b,
    }
}

/// What PostgreSQL calls a statement, for "... is not supported".
pub(crate) fn statement_name(node: &Node) -> &'static str {
    match node {
        Node::MergeStmt(_) => "MERGE",
        Node::CreateFunctionStmt(s) if s.is_procedure => "CREATE PROCEDURE",
        Node::CreateFunctionStmt(_) => "CREATE FUNCTION",
        Node::AlterFunctionStmt(_) => "ALTER FUNCTION",
        Node::DoStmt(_) => "DO",
        Node::CallStmt(_) => "CALL",
        Node::ListenStmt(_) => "LISTEN",
        Node::NotifyStmt(_) => "NOTIFY",
        Node::UnlistenStmt(_) => "UNLISTEN",
        Node::GrantStmt(s) if s.is_grant => "GRANT",
        Node::GrantStmt(_) => "REVOKE",
        Node::GrantRoleStmt(s) if s.is_grant => "GRANT ROLE",
        Node::GrantRoleStmt(_) => "REVOKE ROLE",
        Node::AlterDefaultPrivilegesStmt(_) => "ALTER DEFAULT PRIVILEGES",
        Node::CreateExtensionStmt(_) => "CREATE EXTENSION",
        Node::AlterExtensionStmt(_) | Node::AlterExtensionContentsStmt(_) => "ALTER EXTENSION",
        Node::CreateTrigStmt(_) => "CREATE TRIGGER",
        Node::CreateEventTrigStmt(_) => "CREATE EVENT TRIGGER",
        Node::AlterEventTrigStmt(_) => "ALTER EVENT TRIGGER",
        Node::RuleStmt(_) => "CREATE RULE",
        Node::CreatePolicyStmt(_) => "CREATE POLICY",
        Node::AlterPolicyStmt(_) => "ALTER POLICY",
        Node::CreateEnumStmt(_) | Node::CompositeTypeStmt(_) | Node::CreateRangeStmt(_) => {
            "CREATE TYPE"
        }
        Node::AlterEnumStmt(_) | Node::AlterTypeStmt(_) => "ALTER TYPE",
        Node::CreateDomainStmt(_) => "CREATE DOMAIN",
        Node::AlterDomainStmt(_) => "ALTER DOMAIN",
        Node::DefineStmt(_) => "CREATE AGGREGATE, OPERATOR, TYPE, TEXT SEARCH or COLLATION",
        Node::CreateCastStmt(_) => "CREATE CAST",
        Node::CreateConversionStmt(_) => "CREATE CONVERSION",
        Node::CreateTransformStmt(_) => "CREATE TRANSFORM",
        Node::CreatePlangStmt(_) => "CREATE LANGUAGE",
        Node::CreateAmStmt(_) => "CREATE ACCESS METHOD",
        Node::CreateOpClassStmt(_) => "CREATE OPERATOR CLASS",
        Node::CreateOpFamilyStmt(_) => "CREATE OPERATOR FAMILY",
        Node::AlterOpFamilyStmt(_) => "ALTER OPERATOR FAMILY",
        Node::AlterOperatorStmt(_) => "ALTER OPERATOR",
        Node::CreateStatsStmt(_) => "CREATE STATISTICS",
        Node::AlterStatsStmt(_) => "ALTER STATISTICS",
        Node::CreatedbStmt(_) => "CREATE DATABASE",
        Node::DropdbStmt(_) => "DROP DATABASE",
        Node::AlterDatabaseStmt(_) | Node::AlterDatabaseRefreshCollStmt(_) => "ALTER DATABASE",
        Node::CreateTableSpaceStmt(_) => "CREATE TABLESPACE",
        Node::DropTableSpaceStmt(_) => "DROP TABLESPACE",
        Node::AlterTableSpaceOptionsStmt(_) => "ALTER TABLESPACE",
        Node::AlterTableMoveAllStmt(_) => "ALTER TABLE ALL IN TABLESPACE",
        Node::CreateFdwStmt(_) => "CREATE FOREIGN DATA WRAPPER",
        Node::CreateForeignServerStmt(_) => "CREATE SERVER",
        Node::CreateForeignTableStmt(_) => "CREATE FOREIGN TABLE",
        Node::CreateUserMappingStmt(_) => "CREATE USER MAPPING",
        Node::ImportForeignSchemaStmt(_) => "IMPORT FOREIGN SCHEMA",
        Node::CreatePublicationStmt(_) => "CREATE PUBLICATION",
        Node::AlterPublicationStmt(_) => "ALTER PUBLICATION",
        Node::CreateSubscriptionStmt(_) => "CREATE SUBSCRIPTION",
        Node::AlterSubscriptionStmt(_) => "ALTER SUBSCRIPTION",
        Node::DropSubscriptionStmt(_) => "DROP SUBSCRIPTION",
        Node::ClusterStmt(_) => "CLUSTER",
        Node::LoadStmt(_) => "LOAD",
        Node::RefreshMatViewStmt(_) => "REFRESH MATERIALIZED VIEW",
        Node::SecLabelStmt(_) => "SECURITY LABEL",
        Node::DropOwnedStmt(_) => "DROP OWNED",
        Node::ReassignOwnedStmt(_) => "REASSIGN OWNED",
        Node::AlterCollationStmt(_) => "ALTER COLLATION",
        Node::AlterTsconfigurationStmt(_) | Node::AlterTsdictionaryStmt(_) => "ALTER TEXT SEARCH",
        _ => "this statement",
    }
}
