-- How psql shows tables by their persistence.
create table plain (id int primary key, big text);
create unlogged table fast (id int primary key, big text);
create unlogged table fast_copy as select 1 as one, 'x' as x;
select 1 as one into unlogged fast_into;
create index fast_big on fast (big);
\d fast
\d fast_big
\d fast_copy
\d fast_into
alter table fast set logged;
\d fast
\d fast_pkey
alter table plain set unlogged;
\d plain
alter table plain set unlogged;
alter table plain set logged, set logged;
alter table plain set logged, set unlogged;
create temp view pv as select id from plain;
alter table pv set logged;
create temp table mine (id int primary key, big text);
\d mine_pkey
alter table mine set unlogged;
alter table mine set logged;
\dt+ (plain|fast*|mine)
\di+ (plain|fast|mine)*
\dv+ pv
create unlogged view no as select 1;
select relname, relpersistence from pg_class where relname ~ '^(plain|fast|mine|pv)' order by 1;
select relpersistence from pg_class where oid = (select reltoastrelid from pg_class where relname = 'fast');
