-- Levels of tables, settings of roles and databases, as psql shows them.
create table orders (id bigint primary key, total numeric) with (durability = sync);
create table events (at timestamptz, what text) with (durability = async, max_loss = '250ms');
create unlogged table metrics (at timestamptz, value float8);
\d+ orders
\d+ events
\d+ metrics
\d inkling_durability
alter table events set (max_loss = '2s', fillfactor = 80);
\d+ events
alter table events set (max_loss = '2 fortnights');
alter table events set (max_loss = '2h');
alter table events set (durability = always);
alter table events reset (durability);
alter table events reset (durability, max_loss);
\d+ events
select relname, level, max_loss, missed from inkling_durability order by relname;
create role app login;
alter role app set synchronous_commit to off;
alter role app in database postgres set synchronous_commit to local;
alter database postgres set work_mem to '8MB';
alter role all set lock_timeout to '1min';
\drds
alter role app reset all;
alter role app in database postgres reset synchronous_commit;
alter database postgres reset all;
\drds
alter role all reset lock_timeout;
drop role app;
\drds
