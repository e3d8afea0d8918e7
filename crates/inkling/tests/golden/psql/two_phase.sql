\set VERBOSITY verbose
set client_min_messages = warning;
set statement_timeout = '20s';
\set show 'select gid, owner, database, prepared <= now() as before from pg_prepared_xacts order by gid;'
show max_prepared_transactions;
create table t (id int primary key, v int);
insert into t values (1, 10), (2, 20);
create role other login;
-- both ends
begin;
insert into t values (3, 30);
update t set v = 11 where id = 1;
prepare transaction 'one';
select * from t order by id;
:show
commit prepared 'one';
select * from t order by id;
begin;
delete from t where id = 3;
prepare transaction 'two';
rollback prepared 'two';
select * from t order by id;
:show
-- names
begin;
insert into t values (4, 40);
prepare transaction 'a';
begin;
insert into t values (5, 50);
prepare transaction 'a';
select count(*) from t;
begin;
prepare transaction '';
begin;
prepare transaction 'it''s a "name"';
:show
rollback prepared '';
rollback prepared 'it''s a "name"';
commit prepared 'b';
rollback prepared 'b';
commit prepared 'A';
begin;
select length(repeat('x', 200));
prepare transaction 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxy';
select 1 as idle;
-- where it cannot be
prepare transaction 'nowhere';
begin;
commit prepared 'a';
rollback;
begin;
rollback prepared 'a';
rollback;
begin;
select 1 / 0;
prepare transaction 'failed';
select 1 as idle;
:show
-- several statements in one message
insert into t values (6, 60) \; prepare transaction 'implicit';
select * from t where id = 6;
select 1 \; commit prepared 'a';
:show
rollback prepared 'implicit';
prepare transaction 'first' \; select 1 as more;
:show
rollback prepared 'first';
-- locks
\set VERBOSITY sqlstate
set lock_timeout = '50ms';
insert into t values (4, 41);
alter table t add column w int;
lock table t in share mode nowait;
begin;
lock table t in share mode;
rollback;
select locktype, relation::regclass, mode, granted, pid is null as nobody
  from pg_locks where pid is null and locktype = 'relation' order by 2, 3;
reset lock_timeout;
\set VERBOSITY verbose
-- savepoints
begin;
insert into t values (7, 70);
savepoint s;
insert into t values (8, 80);
rollback to s;
insert into t values (9, 90);
savepoint s2;
insert into t values (10, 100);
prepare transaction 'sub';
commit prepared 'sub';
select * from t order by id;
-- settings stay, definitions come later
begin;
set statement_timeout = '17min';
create table made (x int primary key, y serial);
insert into made values (1);
create index on made (y);
prepare transaction 'ddl';
show statement_timeout;
set statement_timeout = '20s';
select * from made;
commit prepared 'ddl';
select * from made;
begin;
drop table made;
prepare transaction 'drop';
set lock_timeout = '50ms';
\set VERBOSITY sqlstate
select * from made;
\set VERBOSITY verbose
reset lock_timeout;
rollback prepared 'drop';
select * from made;
begin;
truncate made;
alter table made add column z int default 5;
prepare transaction 'alter';
commit prepared 'alter';
insert into made values (2);
select * from made;
-- temporary objects
create temp table tmp (x int);
begin;
insert into tmp values (1);
prepare transaction 'temp';
begin;
create temp table tmp2 (x int);
prepare transaction 'temp';
begin;
select * from tmp;
prepare transaction 'temp';
begin;
drop table tmp;
prepare transaction 'temp';
begin;
create temp view tv as select 1 as x;
prepare transaction 'temp';
begin;
insert into t values (11, 110);
prepare transaction 'not temp';
rollback prepared 'not temp';
-- advisory locks
begin;
select pg_advisory_xact_lock(1);
prepare transaction 'advisory';
select pg_try_advisory_lock(1);
rollback prepared 'advisory';
select pg_try_advisory_lock(1);
begin;
select pg_advisory_xact_lock(1);
prepare transaction 'advisory';
select pg_advisory_unlock(1);
select pg_advisory_lock(2);
begin;
select pg_advisory_xact_lock(3);
prepare transaction 'advisory';
select pg_advisory_unlock(2);
commit prepared 'advisory';
-- ownership
begin;
insert into t values (12, 120);
prepare transaction 'mine';
\connect postgres other
set statement_timeout = '20s';
commit prepared 'mine';
rollback prepared 'mine';
begin;
prepare transaction 'theirs';
\connect postgres postgres
\set show 'select gid, owner, database, prepared <= now() as before from pg_prepared_xacts order by gid;'
:show
commit prepared 'theirs';
commit prepared 'mine';
rollback prepared 'a';
select count(*) from t;
-- isolation, nothing written
begin isolation level repeatable read;
select count(*) from t;
prepare transaction 'rr';
begin read only;
prepare transaction 'ro';
:show
commit prepared 'rr';
commit prepared 'ro';
-- too many, one more than may be
begin; prepare transaction '0';
begin; prepare transaction '1';
begin; prepare transaction '2';
begin; prepare transaction '3';
begin; prepare transaction '4';
commit prepared '0';
commit prepared '1';
commit prepared '2';
commit prepared '3';
drop table t, made;
drop role other;
