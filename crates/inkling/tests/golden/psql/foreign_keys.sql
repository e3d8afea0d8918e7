create table customer (id int primary key, email text unique, region int);
create table orders (
  id int generated always as identity primary key,
  customer_id int not null references customer on delete cascade,
  email text references customer (email) on update cascade on delete set null,
  parent_id int references orders deferrable initially deferred
);
create table line (
  order_id int, no int, note text,
  primary key (order_id, no),
  constraint line_of_order foreign key (order_id) references orders match full on delete restrict
);
create table unchecked (order_id int);
alter table unchecked add foreign key (order_id) references orders not valid;
create table put_off (a int unique deferrable initially deferred, b int primary key deferrable);
\d customer
\d orders
\d line
\d unchecked
\d put_off
\dt
insert into customer values (1, 'a@b', 1);
insert into orders (customer_id, email) values (1, 'a@b');
\set VERBOSITY verbose
insert into orders (customer_id) values (7);
delete from customer;
insert into line values (1, 1, 'x');
delete from customer;
drop table orders;
\set VERBOSITY default
drop table orders;
drop table orders cascade;
truncate customer;
begin;
insert into put_off values (1, 1), (1, 2);
commit;
\d line
drop table customer, line, unchecked, put_off;
