//! The order of keys is the order of values.

use super::*;
use crate::types::arbitrary::{typed_pair, typed_row, value};
use crate::types::compare::compare_as;
use proptest::prelude::*;
use std::cmp::Ordering;

fn key(values: &[Datum], cols: &[(Oid, bool, bool)]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(values, cols, &mut out).unwrap();
    out
}

proptest! {
    #[test]
    fn keys_order_as_values((ty, a, b) in typed_pair()) {
        let up = [(ty, false, false)];
        let down = [(ty, true, true)];
        let (a, b) = ([a], [b]);
        let order = compare_as(ty, &a[0], &b[0]);
        prop_assert_eq!(key(&a, &up).cmp(&key(&b, &up)), order, "{:?} {:?}", a, b);
        prop_assert_eq!(key(&a, &down).cmp(&key(&b, &down)), order.reverse());
        let null = [Datum::Null];
        prop_assert_eq!(key(&null, &up).cmp(&key(&a, &up)), Ordering::Greater);
        prop_assert_eq!(key(&null, &[(ty, false, true)]).cmp(&key(&a, &up)), Ordering::Less);
        prop_assert_eq!(key(&null, &down).cmp(&key(&a, &down)), Ordering::Less);
    }

    /// With equal first columns the second decides, whatever the first's bytes.
    #[test]
    fn columns_do_not_run_into_each_other(
        (ty, a, b) in typed_pair(),
        x in value(Oid::INT4),
        y in value(Oid::INT4),
        descending in any::<bool>(),
    ) {
        let cols = [(ty, descending, false), (Oid::INT4, false, false)];
        let first = compare_as(ty, &a, &b);
        let expected = if descending { first.reverse() } else { first }
            .then(crate::types::compare(&x, &y));
        let (k1, k2) = (key(&[a, x], &cols), key(&[b, y], &cols));
        prop_assert_eq!(k1.cmp(&k2), expected);
        prop_assert!(k1 == k2 || !k1.starts_with(&k2));
    }

    #[test]
    fn decodable_keys_come_back(row in typed_row(), flags in any::<u32>()) {
        let row: Vec<_> = row.into_iter().filter(|(t, _)| decodable(*t)).collect();
        let (types, values): (Vec<Oid>, Vec<Datum>) = row.into_iter().unzip();
        let cols: Vec<_> = types
            .iter()
            .enumerate()
            .map(|(i, t)| (*t, flags >> (2 * i) & 1 == 1, flags >> (2 * i + 1) & 1 == 1))
            .collect();
        let bytes = key(&values, &cols);
        let mut out = vec![Datum::Null; values.len()];
        decode_key(&bytes, &cols, &mut out).unwrap();
        prop_assert_eq!(out, values);
    }

    #[test]
    fn garbage_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let plain = |ty| (ty, false, false);
        let cols = [plain(Oid::TEXT), (Oid::BYTEA, true, false), plain(Oid::INT8)];
        let mut out = vec![Datum::Null; 3];
        let _ = decode_key(&bytes, &cols, &mut out);
    }
}

#[test]
fn sample_keys() {
    let cols = [(Oid::INT4, false, false), (Oid::TEXT, false, false)];
    let bytes = key(&[Datum::Int4(5), Datum::text("ab")], &cols);
    assert_eq!(bytes, [1, 0x80, 0, 0, 5, 1, b'a', b'b', 0]);
    let down = key(&[Datum::text("ab")], &[(Oid::TEXT, true, false)]);
    assert_eq!(down, [1, 0x9e, 0x9d, 0xff]);
}
