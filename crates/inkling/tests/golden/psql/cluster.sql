-- What there is on the whole server.
\l
\du
create role reader login;
create role clerk nologin;
\du
drop role reader, clerk;
\conninfo
