-- What is not there is refused by name.
create table t (a int primary key, b int);
create table f (a int, exclude using gist (a with =));
create function f() returns int language sql as 'select 1';
create table x (a int) partition by range (a);
create table x () inherits (t);
create extension plpgsql;
create type mood as enum ('sad', 'ok');
create domain positive as int check (value > 0);
create index concurrently i on t (b);
create index i on t using hash (b);
create materialized view m as select 1;
vacuum full t;
begin isolation level serializable;
prepare transaction 'x';
copy t to '/tmp/x';
copy t to program 'cat';
listen l;
do 'begin end';
merge into t using t u on t.a = u.a when matched then delete;
select 1
for update;
drop table t;
