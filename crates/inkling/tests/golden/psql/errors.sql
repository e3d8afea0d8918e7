-- Errors as psql shows them: position, detail, hint, fields.
create table t (a int primary key, b text not null, c int check (c < 10));
insert into t values (1, 'x', null);
select nope from t;
select * from missing;
selec 1;
select 1 +;
select 'abc'::int;
select 1 / 0;
select a, count(*) from t;
select t.a from t x;
insert into t values (1, 'y', null);
insert into t values (2, null, null);
insert into t values (2, 'y', 99);
insert into t (nope) values (1);
insert into t values (1, 2, 3, 4);
select upper(1, 2);
select 9223372036854775807 + 1;
select cast('2024-02-30' as date);
create table t (a int);
drop table missing;
drop table if exists missing;
begin;
select 1 / 0;
select 1;
commit;
\set VERBOSITY verbose
insert into t values (1, 'y', null);
\set VERBOSITY sqlstate
select nope;
\set VERBOSITY default
select * from t;
drop table t;
