//! Aggregates and the random sequence against the answers of PostgreSQL 15.

use super::testing::TestContext;
use super::{Implementation, lookup};
use crate::types::{Datum, Oid, TypeRef, info_by_name, io, record::natural_type};

/// Feeds rows (fields separated by `|`, `\N` for NULL) of some types to an aggregate.
fn aggregate(name: &str, types: &[&str], rows: &[&str]) -> String {
    let cx = TestContext::default();
    let oids: Vec<Oid> = types.iter().map(|t| info_by_name(t).expect("a type").oid).collect();
    let fits = |declared: &[Oid]| {
        declared == oids
            || (declared.len() == oids.len()
                && declared.iter().all(|t| {
                    matches!(*t, Oid::ANY | Oid::ANYELEMENT | Oid::ANYARRAY | Oid::ANYNONARRAY)
                }))
    };
    let function = lookup(name).iter().find(|f| fits(f.args)).expect("an aggregate");
    let Implementation::Aggregate(start) = function.imp else { panic!("not an aggregate") };
    let mut state = start(&oids);
    for row in rows {
        let value = |(text, ty): (&str, &Oid)| match text {
            "\\N" => Datum::Null,
            text => io::text_in(TypeRef::plain(*ty), text, &cx).expect("a value"),
        };
        let fields: Vec<Datum> = row.split('|').zip(&oids).map(value).collect();
        state.update(&fields).expect("an update");
    }
    match state.finish().expect("a result") {
        Datum::Null => "NULL".into(),
        d => io::to_text(&d, natural_type(&d), &cx).into(),
    }
}

fn check(types: &[&str], rows: &[&str], expected: &[(&str, &str)]) {
    for (name, answer) in expected {
        assert_eq!(aggregate(name, types, rows), *answer, "{name}{types:?}");
    }
}

#[test]
fn sums_and_deviations() {
    let integers = [
        ("sum", "0"),
        ("avg", "0.00000000000000000000"),
        ("var_pop", "17.5000000000000000"),
        ("variance", "23.3333333333333333"),
        ("stddev_pop", "4.1833001326703777"),
        ("stddev", "4.8304589153964795"),
        ("count", "4"),
        ("bit_and", "0"),
        ("bit_or", "-1"),
        ("bit_xor", "-2"),
    ];
    for ty in ["int2", "int4", "int8"] {
        check(&[ty], &["1", "2", "4", "\\N", "-7"], &integers);
    }
    check(&["int4"], &["1", "2", "4", "\\N", "-7"], &[("min", "-7"), ("max", "4")]);
    let fractions = ["1.5", "2.25", "\\N", "-3.125"];
    check(
        &["numeric"],
        &fractions,
        &[
            ("sum", "0.625"),
            ("avg", "0.20833333333333333333"),
            ("var_pop", "5.6493055555555556"),
            ("var_samp", "8.4739583333333333"),
            ("stddev_pop", "2.3768267828252768"),
            ("stddev_samp", "2.9110064124514280"),
        ],
    );
    check(
        &["float8"],
        &fractions,
        &[
            ("sum", "0.625"),
            ("avg", "0.20833333333333334"),
            ("var_pop", "5.649305555555556"),
            ("var_samp", "8.473958333333334"),
            ("stddev_pop", "2.376826782825277"),
            ("stddev_samp", "2.911006412451428"),
            ("min", "-3.125"),
            ("max", "2.25"),
        ],
    );
    check(
        &["int8"],
        &["9223372036854775807", "9223372036854775807", "1"],
        &[
            ("sum", "18446744073709551615"),
            ("avg", "6148914691236517205"),
            ("var_samp", "28356863910078205276316721236840983212"),
            ("stddev_pop", "4347939275110927403"),
        ],
    );
    check(&["int4"], &["5"], &[("variance", "NULL"), ("stddev_pop", "0")]);
    check(&["int4"], &[], &[("sum", "NULL"), ("avg", "NULL"), ("max", "NULL"), ("count", "0")]);
}

#[test]
fn regression() {
    check(
        &["float8", "float8"],
        &["1|2", "2|3", "4|7", "\\N|1"],
        &[
            ("corr", "0.989743318610787"),
            ("covar_pop", "2.6666666666666665"),
            ("covar_samp", "4"),
            ("regr_slope", "0.5714285714285714"),
            ("regr_intercept", "0.04761904761904775"),
            ("regr_r2", "0.979591836734694"),
            ("regr_count", "3"),
            ("regr_avgx", "4"),
            ("regr_sxx", "14"),
        ],
    );
}

#[test]
fn texts_arrays_booleans_intervals() {
    check(&["text", "text"], &["a|,", "b|,", "c|\\N", "\\N|,"], &[("string_agg", "a,bc")]);
    check(&["bool"], &["t", "\\N", "f"], &[("bool_and", "f"), ("bool_or", "t"), ("every", "f")]);
    check(&["int4"], &["1", "\\N", "3"], &[("array_agg", "{1,NULL,3}")]);
    check(&["_int4"], &["{1,2}", "{3,4}"], &[("array_agg", "{{1,2},{3,4}}")]);
    check(
        &["interval"],
        &["1 day", "2 hours", "1 mon"],
        &[("sum", "1 mon 1 day 02:00:00"), ("avg", "10 days 08:40:00")],
    );
}

#[test]
fn seeds_give_postgresqls_sequence() {
    let cx = TestContext::default();
    let call = |name: &str, args: &[Datum]| {
        let Implementation::Scalar(f) = lookup(name)[0].imp else { panic!("{name}") };
        f(&cx, args).expect("a value")
    };
    call("setseed", &[Datum::Float8(0.5)]);
    assert_eq!(call("random", &[]), Datum::Float8(0.985_167_717_534_799_9));
    assert_eq!(call("random", &[]), Datum::Float8(0.825_301_858_027_981));
    call("setseed", &[Datum::Float8(-0.25)]);
    assert_eq!(call("random", &[]), Datum::Float8(0.555_321_334_003_935_1));
}
