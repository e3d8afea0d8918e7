//! Calls and the answers that PostgreSQL 15 gave.
//!
//! A table in `golden/` has a call a line, fields separated by tabs:
//!
//! ```text
//!   set <tab> timezone <tab> America/New_York
//!   date_trunc <tab> text:hour <tab> timestamp:2024-02-29 12:34:56 <tab> =2024-02-29 12:00:00
//!   int4div <tab> int4:1 <tab> int4:0 <tab> !22012 division by zero
//!   io <tab> interval:1.5 days <tab> =1 day 12:00:00
//! ```
//!
//! `io` reads a value and writes it again; `cast` adds the target type. `\N` is NULL. Lines that
//! differ are listed together, so that one run shows them all.

use super::testing::TestContext;
use super::{Builtin, CastHow, FnContext, Implementation, find_cast, lookup};
use crate::error::{Result, SqlError};
use crate::types::{self, Datum, Oid, TypeRef, io, record::natural_type};

fn type_named(name: &str) -> TypeRef {
    let (name, typmod) = match name.split_once('#') {
        Some((n, m)) => (n, m.parse().expect("a modifier")),
        None => (name, -1),
    };
    let info = types::info_by_name(name).unwrap_or_else(|| panic!("no type {name}"));
    TypeRef::new(info.oid, typmod)
}

fn value(field: &str, cx: &TestContext) -> Result<(TypeRef, Datum)> {
    let (ty, text) = field.split_once(':').unwrap_or_else(|| panic!("no value in {field}"));
    let ty = type_named(ty);
    let text = text.replace("\\n", "\n").replace("\\t", "\t");
    Ok((ty, if text == "\\N" { Datum::Null } else { io::text_in(ty, &text, cx)? }))
}

fn accepts(declared: Oid, given: Oid) -> bool {
    match declared {
        Oid::ANY | Oid::ANYELEMENT | Oid::ANYCOMPATIBLE => true,
        Oid::ANYNONARRAY => !types::array::is_array_type(given),
        Oid::ANYARRAY | Oid::ANYCOMPATIBLEARRAY => types::array::is_array_type(given),
        _ => declared == given,
    }
}

fn find(name: &str, given: &[Oid]) -> &'static Builtin {
    let fits = |b: &&&'static Builtin| {
        let fixed = b.args.len() - usize::from(b.variadic);
        let least = b.args.len() - usize::from(b.optional);
        let counted = if b.variadic {
            given.len() >= fixed
        } else {
            (least..=b.args.len()).contains(&given.len())
        };
        counted && b.args[..fixed.min(given.len())].iter().zip(given).all(|(d, g)| accepts(*d, *g))
    };
    lookup(name).iter().find(fits).unwrap_or_else(|| panic!("no function {name}{given:?}"))
}

fn text(d: &Datum, ty: Oid, cx: &TestContext) -> String {
    if d.is_null() {
        return "\\N".into();
    }
    let ty = match types::info(ty) {
        Some(t) if t.is_pseudo() && ty != Oid::VOID => natural_type(d),
        _ => ty,
    };
    let mut out = Vec::new();
    types::text_out(d, ty, &cx.style, &cx.zone, &mut out);
    String::from_utf8(out).expect("text").replace('\n', "\\n").replace('\t', "\\t")
}

fn call(
    f: &'static Builtin,
    types: &[Oid],
    mut args: Vec<Datum>,
    cx: &TestContext,
) -> Result<String> {
    if f.strict && args.iter().any(Datum::is_null) {
        return Ok("\\N".into());
    }
    args.resize(args.len().max(f.args.len() - usize::from(f.variadic)), Datum::Null);
    match f.imp {
        Implementation::Scalar(run) => Ok(text(&run(cx, &args)?, f.result, cx)),
        Implementation::Typed(run) => Ok(text(&run(cx, types, &args)?, f.result, cx)),
        Implementation::Set(run) => {
            let mut rows = Vec::new();
            for row in run(cx, &args)? {
                let row = row?;
                let shown: Vec<String> = row
                    .iter()
                    .enumerate()
                    .map(|(i, d)| text(d, f.columns.get(i).map_or(f.result, |c| c.1), cx))
                    .collect();
                rows.push(shown.join(","));
            }
            Ok(rows.join(";"))
        }
        _ => Err(SqlError::internal("neither scalar nor set")),
    }
}

fn evaluate(name: &str, fields: &[&str], cx: &TestContext) -> Result<String> {
    if name == "io" {
        let (ty, d) = value(fields[0], cx)?;
        return Ok(text(&d, ty.oid, cx));
    }
    if name == "cast" {
        let (from, d) = value(fields[0], cx)?;
        let to = type_named(fields[1]).oid;
        let cast = find_cast(from.oid, to).unwrap_or_else(|| panic!("no cast {fields:?}"));
        return match &cast.how {
            CastHow::Function(f) => call(f, &[from.oid], vec![d], cx),
            _ => Ok(text(&d, to, cx)),
        };
    }
    let mut given = Vec::new();
    let mut args = Vec::new();
    for field in fields {
        let (ty, d) = value(field, cx)?;
        given.push(ty.oid);
        args.push(d);
    }
    call(find(name, &given), &given, args, cx)
}

/// Runs a table; panics with all lines that differ.
fn run(table: &str) {
    let mut cx = TestContext::default();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in table.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[0] == "set" {
            cx.set(fields[1], fields[2]);
            continue;
        }
        let (expected, args) = fields[1..].split_last().expect("an answer");
        let answer = match evaluate(fields[0], args, &cx) {
            Ok(text) => format!("={text}"),
            Err(e) => format!("!{} {}", e.state.code(), e.message()),
        };
        count += 1;
        if answer != *expected {
            wrong.push(format!("{line}\n    got {answer}"));
        }
    }
    assert!(count > 0, "an empty table");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    let _ = cx.check_interrupt();
}

macro_rules! tables {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(include_str!(concat!("golden/", stringify!($name), ".tsv")));
        })*
    };
}

tables! { arrays dateparts datetimes numbers scalars texts }
