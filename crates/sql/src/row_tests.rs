//! Rows survive encoding; splicing equals encoding anew.

use super::*;
use crate::types::arbitrary::{typed_row, value};
use proptest::prelude::*;

/// NaNs are not equal to themselves, so rows are compared as text.
fn same(a: &[Datum], b: &[Datum]) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

fn codec(types: &[Oid]) -> RowCodec {
    RowCodec::new(&types.iter().map(|t| (TypeRef::plain(*t), false)).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn rows_survive(row in typed_row()) {
        let (types, values): (Vec<Oid>, Vec<Datum>) = row.into_iter().unzip();
        let codec = codec(&types);
        let encoded = EncodedRow::new(&codec, &values).unwrap();
        let mut out = vec![Datum::Null; values.len()];
        codec.decode(encoded.view(), values.len(), &mut out).unwrap();
        prop_assert!(same(&out, &values));
        // Any single column can be read alone.
        for i in 0..values.len() {
            let mut one = vec![Datum::Null; values.len()];
            codec.decode_columns(encoded.view(), &[i], &no_toast, &mut one).unwrap();
            prop_assert!(same(&one[i..=i], &values[i..=i]));
        }
        // Cut data is an error or, at a column's end, a shorter row; never a panic.
        for cut in 0..encoded.data.len() {
            let view = RowView { data: &encoded.data[..cut], ..encoded.view() };
            prop_assert!(codec.decode(view, values.len(), &mut out).is_err());
        }
    }

    #[test]
    fn splicing_is_encoding(row in typed_row(), picks in any::<u16>(), nulls in any::<u16>()) {
        let (types, values): (Vec<Oid>, Vec<Datum>) = row.into_iter().unzip();
        let codec = codec(&types);
        let old = EncodedRow::new(&codec, &values).unwrap();
        let mut changed = values.clone();
        let mut changes = Vec::new();
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for i in (0..types.len()).filter(|i| picks & 1 << i != 0) {
            let new = if nulls & 1 << i != 0 {
                Datum::Null
            } else {
                value(types[i]).new_tree(&mut runner).unwrap().current()
            };
            changes.push((i, new.clone()));
            changed[i] = new;
        }
        let mut spliced = EncodedRow::default();
        codec.splice(old.view(), &changes, &mut spliced).unwrap();
        let fresh = EncodedRow::new(&codec, &changed).unwrap();
        prop_assert_eq!(&spliced.data, &fresh.data);
        prop_assert_eq!(&spliced.nulls, &fresh.nulls);
    }

    #[test]
    fn garbage_is_an_error(row in typed_row(), data in prop::collection::vec(any::<u8>(), 0..80)) {
        let types: Vec<Oid> = row.into_iter().map(|(t, _)| t).collect();
        let mut out = vec![Datum::Null; types.len()];
        let view = RowView { natts: types.len(), nulls: &[], data: &data };
        // Whatever comes of it: no panic.
        let _ = codec(&types).decode(view, types.len(), &mut out);
    }
}

use proptest::strategy::ValueTree as _;

#[test]
fn layout_of_a_sample_row() {
    let codec = codec(&[Oid::INT4, Oid::TEXT, Oid::INT2, Oid::BOOL]);
    let values = [Datum::Int4(7), Datum::text("ab"), Datum::Null, Datum::Bool(true)];
    let row = EncodedRow::new(&codec, &values).unwrap();
    assert_eq!(row.nulls, [0b1011]);
    assert_eq!(row.data, [7, 0, 0, 0, 5, b'a', b'b', 1]);
}

#[test]
fn old_rows_read_missing_values_and_dropped_columns_are_skipped() {
    let old = codec(&[Oid::TEXT, Oid::INT4]);
    let row = EncodedRow::new(&old, &[Datum::text("gone"), Datum::Int4(1)]).unwrap();
    let mut now = RowCodec::new(&[
        (TypeRef::plain(Oid::TEXT), true),
        (TypeRef::plain(Oid::INT4), false),
        (TypeRef::plain(Oid::INT8), false),
    ]);
    now.columns[2].missing = Datum::Int8(9);
    let mut out = vec![Datum::Bool(true); 3];
    now.decode(row.view(), 3, &mut out).unwrap();
    assert_eq!(out, [Datum::Null, Datum::Int4(1), Datum::Int8(9)]);
    // An update writes the missing value down and drops the dropped one.
    let mut updated = EncodedRow::default();
    now.splice(row.view(), &[(1, Datum::Int4(2))], &mut updated).unwrap();
    let fresh = EncodedRow::new(&now, &[Datum::Null, Datum::Int4(2), Datum::Int8(9)]).unwrap();
    assert_eq!((updated.data, updated.nulls), (fresh.data, fresh.nulls));
}

#[test]
fn packed_values_are_fetched() {
    let codec = codec(&[Oid::INT4, Oid::TEXT]);
    let long = "x".repeat(500);
    let row = EncodedRow::new(&codec, &[Datum::Int4(1), Datum::text(&long)]).unwrap();
    let values = codec.long_values(row.view()).unwrap();
    assert_eq!(values.len(), 1);
    assert_eq!((values[0].column, values[0].bytes.len(), values[0].packed), (1, 500, false));
    let mut packed = EncodedRow::default();
    codec.repack(row.view(), &[(1, vec![PACKED_TOAST, 42])], &mut packed).unwrap();
    assert!(packed.body().has_external);
    let mut out = vec![Datum::Null; 2];
    assert!(codec.decode(packed.view(), 2, &mut out).is_err());
    let fetch = |bytes: &[u8]| {
        assert_eq!(bytes, [PACKED_TOAST, 42]);
        Ok(long.clone().into_bytes())
    };
    codec.decode_with(packed.view(), 2, &fetch, &mut out).unwrap();
    assert_eq!(out[1], Datum::text(&long));
    // An update that leaves the column alone keeps the pointer.
    let mut spliced = EncodedRow::default();
    codec.splice(packed.view(), &[(0, Datum::Int4(2))], &mut spliced).unwrap();
    assert!(spliced.body().has_external);
}
