-- Tables, rows, and how psql shows them.
create table account (
    id bigint primary key,
    owner text not null,
    cents integer not null default 0 check (cents >= 0),
    opened date,
    constraint account_owner_key unique (owner)
);
create index account_opened on account (opened desc, lower(owner));
comment on table account is 'who has what';
insert into account values (1, 'ada', 1000, '2024-01-31'), (2, 'bob', 0, null);
insert into account (id, owner) values (3, 'cy') returning *;
select * from account order by id;
select owner, cents * 2 as twice from account where cents > 0;
update account set cents = cents + 5 where id < 3;
delete from account where id = 3;
select count(*), sum(cents), avg(cents), min(opened) from account;
\x on
select * from account order by id limit 1;
\x off
\pset null '(null)'
select owner, opened from account order by owner;
\pset null ''
\d account
\d+ account
\d account_pkey
\d account_opened
create view rich as select owner, cents from account where cents > 100;
select * from rich;
\d rich
\d+ rich
\dt
\dt+ no_such
\di
\dv
\ds
\d no_such
create table wide (
    a smallint, b integer, c bigint, d real, e double precision, f numeric(10,2), g boolean,
    h char(3), i varchar(5), j text, k bytea, l date, m time, n timetz, o timestamp,
    p timestamptz, q interval, r uuid, s json, t integer[], u text[]
);
\d wide
drop view rich;
drop table account, wide;
\dt
