//! Types of parameters, given and inferred.

use super::fixture::Fixture;
use crate::analyze::{Execute, MAX_BOUND_DEPTH, ParamTypes, Statement, Utility, coerce_arguments};
use crate::types::{Oid, format_type};

/// The inferred types, or the error.
fn infer(sql: &str, given: &[u32]) -> String {
    let f = Fixture::new();
    let mut params = ParamTypes::variable(given.iter().map(|o| Oid(*o)).collect());
    match f.bind_with(sql, &mut params) {
        Ok(_) => {
            let names: Vec<String> = params.types().iter().map(|t| format_type(*t, -1)).collect();
            names.join(", ")
        }
        Err(e) => super::describe_error(&e),
    }
}

#[test]
fn inferred() {
    for (sql, expected) in [
        ("select $1", "text"),
        ("select $1 + 1", "integer"),
        ("select $1::int8", "bigint"),
        ("select a from t where a = $1 and b = $2 and c = $3", "integer, text, text"),
        (
            "select a from t where e = $1 and d > $2 and h < $3",
            "bigint, numeric, timestamp with time zone",
        ),
        ("select a from t where a in ($1, $2)", "integer, integer"),
        ("select a from t where a = any($1)", "integer[]"),
        ("select a from t where b like $1", "text"),
        ("select a from t limit $1 offset $2", "bigint, bigint"),
        (
            "insert into t (a, b, c, d) values ($1, $2, $3, $4)",
            "integer, text, character varying, numeric",
        ),
        ("insert into t (a, b) select $1, $2", "integer, text"),
        ("update t set b = $1, e = e + $2 where a = $3", "text, bigint, integer"),
        ("delete from t where a = $1 returning $2::int", "integer, integer"),
        ("select case when $1 then 1 else $2 end", "boolean, integer"),
        ("select coalesce($1, 1.5)", "numeric"),
        ("select $1 union select 1", "integer"),
        ("values ($1, 1), (2, $2)", "integer, integer"),
        ("select * from t where ($1::int is null or a = $1)", "integer"),
        ("select a from t where a between $1 and $2", "integer, integer"),
        ("select array[$1, 1]", "integer"),
        ("select g[$1] from t", "integer"),
        ("select $2::text, $1::int", "integer, text"),
        ("select 1 from t where $1", "boolean"),
        ("select upper($1)", "text"),
    ] {
        assert_eq!(infer(sql, &[]), expected, "{sql}");
    }
}

#[test]
fn refused() {
    for (sql, expected) in [
        ("select $1 is null", "42P18 could not determine data type of parameter $1"),
        ("select $2::int", "42P18 could not determine data type of parameter $1"),
        ("select $1::int, $1::text", "text"),
    ] {
        let found = infer(sql, &[]);
        if expected == "text" {
            // The first use decides; the second is a cast of what it decided.
            assert_eq!(found, "integer", "{sql}");
        } else {
            assert_eq!(found, expected, "{sql}");
        }
    }
    assert_eq!(infer("select $1 + 1", &[20]), "bigint");
    assert_eq!(infer("select $1, $2::text", &[23]), "integer, text");
    let f = Fixture::new();
    let fixed = f.bind_with("select $2", &mut ParamTypes::fixed(vec![Oid::INT4])).unwrap_err();
    assert_eq!(super::describe_error(&fixed), "42P02@8 there is no parameter $2");
    let none = f.bind("select $1").unwrap_err();
    assert_eq!(super::describe_error(&none), "42P02@8 there is no parameter $1");
}

#[test]
fn execute_arguments() {
    let f = Fixture::new();
    let execute = |sql: &str| -> Execute {
        match f.bind(sql) {
            Ok(Statement::Utility(Utility::Execute(e))) => e,
            other => panic!("{other:?}"),
        }
    };
    let e = execute("execute p ('5', 1)");
    let args = coerce_arguments(&f.cx(), &e, &[Oid::INT4, Oid::INT8]).unwrap();
    assert_eq!(args.iter().map(|e| e.ty().oid).collect::<Vec<_>>(), [Oid::INT4, Oid::INT8]);
    let e = coerce_arguments(&f.cx(), &e, &[Oid::INT4]).unwrap_err();
    assert_eq!(e.message(), "wrong number of parameters for prepared statement \"p\"");
    let e = execute("execute p (array[1])");
    let e = coerce_arguments(&f.cx(), &e, &[Oid::INT4]).unwrap_err();
    assert_eq!(
        e.message(),
        "parameter $1 of type integer[] cannot be coerced to the expected type integer"
    );
}

/// On a small stack, whatever the nesting: an answer or an error, never a crash.
#[test]
fn deep_statements() {
    let run = || {
        let f = Fixture::new();
        for n in [MAX_BOUND_DEPTH / 2, MAX_BOUND_DEPTH * 4] {
            for sql in [
                format!("select {}", vec!["1"; n].join("+")),
                format!("select {} from t", vec!["b"; n].join("||")),
                format!("select {} true", "not ".repeat(n)),
                vec!["select 1"; n].join(" union all "),
                format!("{} 1 {}", "select (select ".repeat(n), ")".repeat(n)),
                format!("select {} t.a from t", "- ".repeat(n)),
                format!("select * from t {}", "join u using (a) ".repeat(n)),
                format!("select {}1{}", "case when true then ".repeat(n), " end".repeat(n)),
                format!("select {}1{}", "array[".repeat(n), "]".repeat(n)),
                format!("select {}1{}", "coalesce(".repeat(n), ")".repeat(n)),
                format!("select {}", vec!["a = 1"; n].join(" or ")),
            ] {
                match f.bind(&sql) {
                    Ok(s) => drop(s.clone()),
                    Err(e) => {
                        let code = e.state.code();
                        let known = ["54001", "42601", "42703", "42P01", "42712", "42702", "54000"];
                        assert!(known.contains(&code), "{}: {e}", &sql[..40]);
                    }
                }
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(run);
    thread.expect("a thread").join().expect("no crash");
}
