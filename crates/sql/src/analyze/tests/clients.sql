select current_schema(), version()
----
select set_config('search_path', '', false)
----
show transaction isolation level
----
SELECT t.oid, t.typname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.typname = $1 AND n.nspname = ANY(current_schemas(true))
----
SELECT e.typdelim FROM pg_catalog.pg_type t, pg_catalog.pg_type e WHERE t.oid = $1 and t.typelem = e.oid
----
SELECT typinput='pg_catalog.array_in'::regproc as is_array, typtype, typname, pg_type.oid FROM pg_catalog.pg_type LEFT JOIN (select ns.oid as nspoid, ns.nspname, r.r from pg_namespace as ns join ( select s.r, (current_schemas(false))[s.r] as nspname from generate_series(1, array_upper(current_schemas(false), 1)) as s(r) ) as r using ( nspname )) as sp ON sp.nspoid = typnamespace WHERE pg_type.oid = $1 ORDER BY sp.r, pg_type.oid DESC
----
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid) FROM pg_catalog.pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef) AS default, a.attnotnull FROM pg_catalog.pg_attribute a WHERE a.attrelid = 't'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
----
SELECT c.conname, array_agg(a.attname ORDER BY k.n) FROM pg_catalog.pg_constraint c JOIN unnest(c.conkey) WITH ORDINALITY AS k(attnum, n) ON true JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum WHERE c.contype = 'p' GROUP BY c.conname
----
select (select 1 from pg_class where oid = $1), exists (select 1 from pg_namespace where nspname = $2)
----
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE
----
UPDATE t SET e = e + $1 WHERE a = $2
----
SELECT e FROM t WHERE a = $1
----
INSERT INTO u (id, a, name) SELECT * FROM UNNEST(($1)::int[], ($2)::int[], ($3)::text[])
----
INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = EXCLUDED.b RETURNING a
----
SELECT "t"."a", "t"."b" FROM "t" WHERE ("t"."f" AND "t"."a" IN ($1, $2) AND "t"."b"::text LIKE $3) ORDER BY "t"."a" ASC LIMIT 21 FOR UPDATE OF "t" SKIP LOCKED
----
SELECT pg_advisory_unlock_all()
----
CLOSE ALL
----
UNLISTEN *
----
RESET ALL
