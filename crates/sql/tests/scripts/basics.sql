select 1 as one, 'two' as two, null::int as three;
create table t (id int primary key, name text not null default 'x', amount numeric(10,2), at timestamp);
insert into t values (1, 'a', 1.5, '2024-01-01 10:00'), (2, 'b', 2.25, null), (3, default, null, '2024-05-06');
select * from t order by id;
select count(*), sum(amount), avg(amount), min(name), max(at) from t;
update t set amount = amount + 1 where id = 2 returning *;
delete from t where id = 3;
insert into t values (1, 'dup', 0, null);
insert into t (id, name) values (4, null);
select id, name from t where id in (1, 2) order by id desc limit 1;
begin;
insert into t values (10, 'ten');
savepoint s;
insert into t values (11, 'eleven');
rollback to s;
select id from t order by id;
rollback;
select id from t order by id;
select relname, relkind from pg_class where relname in ('t', 't_pkey', 'pg_class') order by 1;
create index on t (name, id desc);
explain (costs off) select * from t where id = 1;
select a.id, b.id from t a left join t b on b.id = a.id + 1 order by 1;
select name, count(*) from t group by name having count(*) > 0 order by 1;
copy t (id, name) from stdin;
20	twenty
21	\N
\.
copy t (id, name) from stdin (format csv);
20,twenty
21,"twenty ""one"""
\.
copy t to stdout;
truncate t;
select count(*) from t;
drop table t;
select * from t;
selec 1;
