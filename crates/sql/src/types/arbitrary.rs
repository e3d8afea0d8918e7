//! Random values of every type, for property tests.

use super::numeric::Numeric;
use super::{ArrayValue, Datum, Interval, Oid, TimeTz};
use inkling_storage::ids::{RowId, SlotNo};
use proptest::prelude::*;
use std::sync::Arc;

/// Types with an order that values can be drawn for.
pub const TYPES: &[Oid] = &[
    Oid::BOOL,
    Oid::INT2,
    Oid::INT4,
    Oid::INT8,
    Oid::FLOAT4,
    Oid::FLOAT8,
    Oid::NUMERIC,
    Oid::TEXT,
    Oid::BPCHAR,
    Oid::BYTEA,
    Oid::DATE,
    Oid::TIME,
    Oid::TIMETZ,
    Oid::TIMESTAMP,
    Oid::INTERVAL,
    Oid::UUID,
    Oid::OID,
    Oid::CHAR,
    Oid::TID,
    Oid::INT4_ARRAY,
    Oid::TEXT_ARRAY,
    Oid::NUMERIC_ARRAY,
];

fn numeric() -> BoxedStrategy<Datum> {
    let number = prop_oneof![
        (any::<i64>(), 0i32..20).prop_map(|(v, s)| Numeric::from_i128(v.into(), s)),
        (any::<i128>(), 0i32..60).prop_map(|(v, s)| Numeric::from_i128(v, s)),
        (-50i64..50, 0i32..3).prop_map(|(v, s)| Numeric::from_i128(v.into(), s)),
        Just(Numeric::NAN),
        Just(Numeric::INFINITY),
        Just(Numeric::NEG_INFINITY),
        Just(Numeric::parse("1e400").expect("a number")),
        Just(Numeric::parse("-1e-400").expect("a number")),
    ];
    number.prop_map(|n| Datum::Numeric(Arc::new(n))).boxed()
}

fn array(element: Oid) -> BoxedStrategy<Datum> {
    let item = prop_oneof![1 => Just(Datum::Null), 6 => value(element)];
    let flat = prop::collection::vec(item, 0..6)
        .prop_map(move |items| ArrayValue::from_items(element, items));
    (flat, any::<bool>(), -2i32..3)
        .prop_map(|(mut a, deep, lower)| {
            if deep && !a.dims.is_empty() {
                a.dims.insert(0, (1, lower));
            }
            Datum::Array(Arc::new(a))
        })
        .boxed()
}

/// A value of a type, often a small or a special one.
pub fn value(ty: Oid) -> BoxedStrategy<Datum> {
    let small = || prop_oneof![Just(0i64), Just(i64::MIN), Just(i64::MAX), -3i64..3, any::<i64>()];
    match ty {
        Oid::BOOL => any::<bool>().prop_map(Datum::Bool).boxed(),
        Oid::INT2 => small().prop_map(|v| Datum::Int2(v as i16)).boxed(),
        Oid::INT4 => small().prop_map(|v| Datum::Int4(v as i32)).boxed(),
        Oid::INT8 => small().prop_map(Datum::Int8).boxed(),
        Oid::FLOAT4 => prop_oneof![any::<f32>(), Just(-0.0), Just(0.0), Just(f32::NAN)]
            .prop_map(Datum::Float4)
            .boxed(),
        Oid::FLOAT8 => prop_oneof![any::<f64>(), Just(-0.0), Just(0.0), Just(f64::NAN)]
            .prop_map(Datum::Float8)
            .boxed(),
        Oid::NUMERIC => numeric(),
        Oid::TEXT => {
            prop_oneof!["[ab]{0,3}", "\\PC{0,40}", "[a-z ]{100,140}"].prop_map(Datum::text).boxed()
        }
        Oid::BPCHAR => "[ab]{0,2} {0,2}".prop_map(Datum::text).boxed(),
        Oid::BYTEA => prop::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..9)
            .prop_map(|v| Datum::Bytea(v.into()))
            .boxed(),
        Oid::DATE => small().prop_map(|v| Datum::Date(v as i32)).boxed(),
        Oid::TIME => (0i64..86_400_000_000).prop_map(Datum::Time).boxed(),
        Oid::TIMETZ => (0i64..86_400_000_000, -57_599i32..57_599)
            .prop_map(|(micros, zone)| Datum::TimeTz(TimeTz { micros, zone }))
            .boxed(),
        Oid::TIMESTAMP => small().prop_map(Datum::Timestamp).boxed(),
        Oid::INTERVAL => (small(), -40i32..40, -40i32..40)
            .prop_map(|(micros, days, months)| Datum::Interval(Interval { months, days, micros }))
            .boxed(),
        Oid::UUID => any::<[u8; 16]>().prop_map(Datum::Uuid).boxed(),
        Oid::OID => small().prop_map(|v| Datum::Oid(v as u32)).boxed(),
        Oid::CHAR => any::<u8>().prop_map(Datum::Char).boxed(),
        Oid::TID => (any::<u32>(), any::<u16>())
            .prop_map(|(block, slot)| Datum::Tid(RowId::new(block, SlotNo::new(slot))))
            .boxed(),
        Oid::INT4_ARRAY => array(Oid::INT4),
        Oid::TEXT_ARRAY => array(Oid::TEXT),
        _ => array(Oid::NUMERIC),
    }
}

/// A type and two values of it.
pub fn typed_pair() -> BoxedStrategy<(Oid, Datum, Datum)> {
    prop::sample::select(TYPES).prop_flat_map(|ty| (Just(ty), value(ty), value(ty))).boxed()
}

/// A list of types with a value or NULL for each.
pub fn typed_row() -> BoxedStrategy<Vec<(Oid, Datum)>> {
    let column = prop::sample::select(TYPES)
        .prop_flat_map(|ty| (Just(ty), prop_oneof![1 => Just(Datum::Null), 4 => value(ty)]));
    prop::collection::vec(column, 0..12).boxed()
}
