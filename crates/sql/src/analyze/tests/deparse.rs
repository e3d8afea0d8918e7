//! Canonical text: PostgreSQL's, and text that means the same when it is read again.

use super::fixture::Fixture;
use crate::analyze::{Statement, Utility, bind_stored_expr, deparse};
use crate::types::Oid;

const PATH: &[Oid] = &[Oid::PG_CATALOG_SCHEMA];

#[test]
fn expressions_as_postgresql_writes_them() {
    let f = Fixture::new();
    let table = f.catalog.tables[&Oid(20000)].clone();
    let mut wrong = Vec::new();
    for case in include_str!("deparse.golden").split("\n> ") {
        let case = case.trim_start_matches("> ").trim_end();
        let Some((text, expected)) = case.split_once('\n') else { continue };
        let found = match bind_stored_expr(&f.cx(), &table, text) {
            Err(e) => super::describe_error(&e),
            Ok(e) => {
                let shown = deparse::expr(&e, Some(&table), &f.catalog, PATH);
                // What was written binds again, to what writes the same.
                match bind_stored_expr(&f.cx(), &table, &shown) {
                    Err(e) => format!("{shown}\n  again: {}", super::describe_error(&e)),
                    Ok(again) => {
                        let second = deparse::expr(&again, Some(&table), &f.catalog, PATH);
                        assert_eq!(second, shown);
                        shown
                    }
                }
            }
        };
        // PostgreSQL puts CASE on lines of its own.
        let expected = expected.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = expected.replace("( CASE", "(CASE");
        if found != expected {
            wrong.push(format!("> {text}\n  expected: {expected}\n  found:    {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

fn view_text(f: &Fixture, query: &str) -> String {
    match f.bind(&format!("create view w as {query}")) {
        Ok(Statement::Utility(Utility::CreateView(v))) => v.text,
        Ok(other) => panic!("{other:?}"),
        Err(e) => panic!("{query}: {}", super::describe_error(&e)),
    }
}

#[test]
fn views_bind_again_to_the_same_text() {
    let f = Fixture::new();
    for (query, expected) in [
        ("select a from t", "SELECT a FROM public.t"),
        (
            "select t.a as x, u.* from t join u on t.a = u.id where t.f",
            "SELECT t.a AS x, u.id, u.a, u.name FROM (public.t JOIN public.u ON ((t.a = u.id))) \
          WHERE t.f",
        ),
        (
            "select a, count(*) as n from t group by a having count(*) > 1 order by 2 desc limit 3",
            "SELECT a, count(*) AS n FROM public.t GROUP BY a HAVING (count(*) > 1) \
          ORDER BY count(*) DESC LIMIT 3",
        ),
        ("select * from v", "SELECT a, n FROM public.v"),
        (
            "select x.p from (select a as p from t) x",
            "SELECT p FROM ( SELECT t.a AS p FROM public.t) x",
        ),
        ("select 1 as a union all select 2", "SELECT 1 AS a UNION ALL SELECT 2 AS \"?column?\""),
        (
            "with c(x) as (select a from t) select x from c",
            "WITH c(x) AS ( SELECT t.a FROM public.t) SELECT x FROM c",
        ),
        (
            "with recursive r(n) as (values (1) union all select n + 1 from r where n < 5) \
          select n from r",
            "WITH RECURSIVE r(n) AS ( SELECT 1 AS column1 UNION ALL \
          SELECT (r_1.n + 1) AS \"?column?\" FROM r r_1 WHERE (r_1.n < 5)) SELECT n FROM r",
        ),
        (
            "select a from t where exists (select 1 from u where u.a = t.a) \
          and a in (select id from u)",
            "SELECT a FROM public.t WHERE ((EXISTS ( SELECT 1 AS \"?column?\" FROM public.u \
          WHERE (u.a = t.a))) AND (a IN ( SELECT u.id FROM public.u)))",
        ),
        (
            "select distinct on (b) b, a from t order by b, a desc",
            "SELECT DISTINCT ON (b) b, a FROM public.t ORDER BY b, a DESC",
        ),
        (
            "select * from (values (1, 'x'), (2, 'y')) as q(n, s)",
            "SELECT n, s FROM ( VALUES (1, 'x'::text), (2, 'y'::text)) q(n, s)",
        ),
        (
            "select a from t as \"T 1\" where \"T 1\".b = 'x'",
            "SELECT a FROM public.t \"T 1\" WHERE (b = 'x'::text)",
        ),
        (
            "select sum(a) over (partition by b order by a rows between 1 preceding \
          and current row) as s from t",
            "SELECT sum(a) OVER (PARTITION BY b ORDER BY a ROWS BETWEEN 1 PRECEDING AND \
          CURRENT ROW) AS s FROM public.t",
        ),
        (
            "select 't'::regclass as r, array(select id from u) as l",
            "SELECT '20000'::regclass AS r, ARRAY( SELECT u.id FROM public.u) AS l",
        ),
    ] {
        let text = view_text(&f, query);
        assert_eq!(text, expected, "{query}");
        assert_eq!(view_text(&f, &text), text, "{query}");
    }
}

#[test]
fn pretty_views() {
    let f = Fixture::new();
    let Ok(Statement::Select(q)) =
        f.bind("select t.a, u.name from t left join u on u.a = t.a where t.f group by t.a, u.name")
    else {
        panic!("a query");
    };
    let path = &[Oid::PG_CATALOG_SCHEMA, Oid::PUBLIC_SCHEMA];
    assert_eq!(
        deparse::pretty_query(&q, &f.catalog, path),
        " SELECT t.a,\n    u.name\n   FROM (t\n     LEFT JOIN u ON ((u.a = t.a)))\n  WHERE t.f\n  \
         GROUP BY t.a, u.name"
    );
}

#[test]
fn defaults_show_what_was_written() {
    let f = Fixture::new();
    let sql = "create table z (a int default 5, b bigint default 5, c varchar(3) default 'x', \
               d numeric default 1, e text default lower('A'), g int default -1, \
               h bool default true, i text default current_user)";
    let table = match f.bind(sql) {
        Ok(Statement::Utility(Utility::CreateTable(t))) => t,
        other => panic!("{other:?}"),
    };
    let texts: Vec<String> =
        table.columns.iter().map(|c| c.default.as_ref().expect("a default").text.clone()).collect();
    assert_eq!(
        texts,
        [
            "5",
            "5",
            "'x'::character varying",
            "1",
            "lower('A'::text)",
            "'-1'::integer",
            "true",
            "CURRENT_USER"
        ]
    );
}
