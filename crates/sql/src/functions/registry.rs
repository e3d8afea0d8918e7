//! Looking built-ins up: by name, by identifier, by operand types.
//!
//! The tables are static; the maps over them, and the operators and casts with their functions
//! resolved, are built once at first use. A row that names a function we do not have would be a
//! defect of the tables: `tables_are_consistent` checks that there is none, and at run time such a
//! row is left out.

use super::tables::{self, How};
use super::{Builtin, Cast, CastHow, Operator};
use crate::types::{Oid, array, info};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::LazyLock;

type Map<K, V> = HashMap<K, V, FixedState>;

struct Functions {
    by_oid: Map<Oid, &'static Builtin>,
    by_name: Map<&'static str, Vec<&'static Builtin>>,
}

static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    let mut by_oid = Map::default();
    let mut by_name: Map<&'static str, Vec<_>> = Map::default();
    for f in functions() {
        by_oid.insert(f.oid, f);
        by_name.entry(f.name).or_default().push(f);
    }
    Functions { by_oid, by_name }
});

struct Operators {
    all: &'static [Operator],
    by_oid: Map<Oid, &'static Operator>,
    by_name: Map<&'static str, Vec<&'static Operator>>,
    by_operands: Map<(&'static str, Oid, Oid), &'static Operator>,
}

static OPERATORS: LazyLock<Operators> = LazyLock::new(|| {
    let some = |s: &'static str| (!s.is_empty()).then_some(s);
    let all: Vec<Operator> = tables::operators::ROWS
        .iter()
        .filter_map(|row| {
            Some(Operator {
                oid: Oid(row.oid),
                name: row.name,
                left: row.left.is_valid().then_some(row.left),
                right: row.right,
                result: row.result,
                function: by_oid(Oid(row.function))?,
                commutator: some(row.commutator),
                negator: some(row.negator),
            })
        })
        .collect();
    let all: &'static [Operator] = Box::leak(all.into_boxed_slice());
    let mut built = Operators {
        all,
        by_oid: Map::default(),
        by_name: Map::default(),
        by_operands: Map::default(),
    };
    for op in all {
        built.by_oid.insert(op.oid, op);
        built.by_name.entry(op.name).or_default().push(op);
        built.by_operands.insert((op.name, op.left.unwrap_or_default(), op.right), op);
    }
    built
});

struct Casts {
    all: &'static [Cast],
    by_types: Map<(Oid, Oid), &'static Cast>,
}

static CASTS: LazyLock<Casts> = LazyLock::new(|| {
    let all: Vec<Cast> = tables::casts::ROWS
        .iter()
        .filter_map(|row| {
            let how = match row.how {
                How::Relabel => CastHow::Relabel,
                How::Function(oid) => CastHow::Function(by_oid(Oid(oid))?),
            };
            Some(Cast { source: row.source, target: row.target, context: row.context, how })
        })
        .collect();
    let all: &'static [Cast] = Box::leak(all.into_boxed_slice());
    Casts { all, by_types: all.iter().map(|c| ((c.source, c.target), c)).collect() }
});

/// Every built-in function and aggregate.
pub fn functions() -> impl Iterator<Item = &'static Builtin> {
    tables::ALL.iter().flat_map(|table| table.iter())
}

/// The functions of this name.
pub fn lookup(name: &str) -> &'static [&'static Builtin] {
    FUNCTIONS.by_name.get(name).map_or(&[], Vec::as_slice)
}

pub fn by_oid(oid: Oid) -> Option<&'static Builtin> {
    FUNCTIONS.by_oid.get(&oid).copied()
}

/// Every operator.
pub fn all_operators() -> &'static [Operator] {
    OPERATORS.all
}

/// The operators of this name.
pub fn operators(name: &str) -> &'static [&'static Operator] {
    OPERATORS.by_name.get(name).map_or(&[], Vec::as_slice)
}

pub fn operator_by_oid(oid: Oid) -> Option<&'static Operator> {
    OPERATORS.by_oid.get(&oid).copied()
}

/// Every cast.
pub fn casts() -> &'static [Cast] {
    CASTS.all
}

/// The cast that `pg_cast` lists between two types. Casts through text and between arrays are
/// the analyser's rules and not listed.
pub fn find_cast(source: Oid, target: Oid) -> Option<&'static Cast> {
    CASTS.by_types.get(&(source, target)).copied()
}

/// The type whose comparison operators serve `ty`.
fn comparison_type(ty: Oid) -> Oid {
    match ty {
        Oid::VARCHAR | Oid::PG_NODE_TREE | Oid::REFCURSOR => Oid::TEXT,
        Oid::REGCLASS
        | Oid::REGTYPE
        | Oid::REGPROC
        | Oid::REGPROCEDURE
        | Oid::REGOPER
        | Oid::REGOPERATOR
        | Oid::REGNAMESPACE
        | Oid::REGROLE
        | Oid::REGCOLLATION => Oid::OID,
        Oid::INT2VECTOR => Oid::ANYARRAY,
        _ if ty == Oid::OIDVECTOR => ty,
        _ if array::is_array_type(ty) => Oid::ANYARRAY,
        // Row types of tables are not built in.
        _ if info(ty).is_none() => Oid::RECORD,
        _ => ty,
    }
}

fn comparison(name: &'static str, ty: Oid) -> Option<&'static Operator> {
    let ty = comparison_type(ty);
    OPERATORS.by_operands.get(&(name, ty, ty)).copied()
}

/// The type's equality operator, if its values can be compared.
pub fn equality(ty: Oid) -> Option<&'static Operator> {
    comparison("=", ty)
}

/// The type's `<`, if it has an order.
pub fn less(ty: Oid) -> Option<&'static Operator> {
    comparison("<", ty)
}

pub fn greater(ty: Oid) -> Option<&'static Operator> {
    comparison(">", ty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_consistent() {
        let mut seen = std::collections::HashSet::new();
        for f in functions() {
            assert!(seen.insert(f.oid), "duplicate {} {f:?}", f.oid);
        }
        for row in tables::operators::ROWS {
            assert!(by_oid(Oid(row.function)).is_some(), "operator {} {}", row.name, row.oid);
        }
        for row in tables::casts::ROWS {
            if let How::Function(oid) = row.how {
                assert!(by_oid(Oid(oid)).is_some(), "cast {} {}", row.source, row.target);
            }
        }
        for op in all_operators() {
            let given = 1 + usize::from(op.left.is_some());
            assert_eq!(op.function.args.len(), given, "operator {}", op.oid);
        }
    }

    #[test]
    fn types_with_an_order_have_both_directions() {
        for t in crate::types::all() {
            assert_eq!(less(t.oid).is_some(), greater(t.oid).is_some(), "{}", t.name);
            if less(t.oid).is_some() {
                assert!(equality(t.oid).is_some(), "{}", t.name);
            }
        }
        assert_eq!(equality(Oid::INT4).map(|o| o.oid), Some(Oid(96)));
        assert_eq!(less(Oid::VARCHAR).map(|o| o.oid), Some(Oid(664)));
    }
}
