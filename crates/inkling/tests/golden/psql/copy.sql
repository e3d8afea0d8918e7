-- \copy and COPY, both ways.
create table c (a int, b text, c numeric);
\copy c from stdin
1	one	1.50
2	two\twith tab	\N
3	\N	-3
\.
select * from c order by a;
\copy c to stdout
copy c to stdout with (format csv, header);
copy (select a, upper(b) from c where b is not null order by a) to stdout (delimiter '|', null 'nothing');
copy c (a, b) from stdin with (format csv);
4,"quoted, with comma"
5,"and ""quotes"""
6,
\.
select a, b, b is null as missing from c where a > 3 order by a;
copy c from stdin;
7	seven	not a number
\.
copy c from stdin;
8	too few
\.
select count(*) from c;
truncate c;
select count(*) from c;
drop table c;
