-- The describing commands, as PostgreSQL 15's psql sends them.
\dn
create schema shop;
\dn
set search_path = shop, public;
create table item (id int primary key, name varchar(20));
\dt
\dt shop.*
\di
\d shop.item
alter table item add column price numeric(8,2) default 9.99;
alter table item alter column name set not null;
alter table item rename column name to title;
\d item
insert into item (id, title) values (1, 'pen');
table item;
create unique index item_title on item (title) where price > 1;
\d item
select relname, relkind from pg_class where relnamespace = 'shop'::regnamespace order by 1;
select column_name, data_type, is_nullable from information_schema.columns where table_name = 'item' order by ordinal_position;
drop schema shop;
drop table shop.item;
drop schema shop;
reset search_path;
\dn
show search_path;
select current_user, current_database(), current_schema;
prepare p (int) as select $1 + 1 as next;
execute p (41);
deallocate p;
begin;
declare cur cursor for select * from (values (1), (2), (3)) v (x);
fetch 2 from cur;
fetch all from cur;
commit;
