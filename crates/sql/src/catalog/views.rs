//! The system views, as SQL over the system relations and a few functions of the session.
//!
//! They are made like any user's view when a data directory is created: parsed, bound, described
//! in pg_class and pg_attribute, their text kept in pg_rewrite.

/// (schema, name, query).
pub static SYSTEM_VIEWS: &[(&str, &str, &str)] = &[
    (
        "pg_catalog",
        "pg_roles",
        "select rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, \
      rolreplication, rolconnlimit, '********'::text as rolpassword, rolvaliduntil, rolbypassrls, \
      s.setconfig as rolconfig, pg_authid.oid as oid from pg_catalog.pg_authid \
      left join pg_catalog.pg_db_role_setting s \
      on pg_authid.oid = s.setrole and s.setdatabase = 0",
    ),
    (
        "pg_catalog",
        "pg_shadow",
        "select rolname as usename, pg_authid.oid as usesysid, rolcreatedb as usecreatedb, rolsuper as usesuper, \
      rolreplication as userepl, rolbypassrls as usebypassrls, rolpassword as passwd, \
      rolvaliduntil as valuntil, s.setconfig as useconfig from pg_catalog.pg_authid \
      left join pg_catalog.pg_db_role_setting s \
      on pg_authid.oid = s.setrole and s.setdatabase = 0 where rolcanlogin",
    ),
    (
        "pg_catalog",
        "pg_user",
        "select rolname as usename, pg_authid.oid as usesysid, rolcreatedb as usecreatedb, rolsuper as usesuper, \
      rolreplication as userepl, rolbypassrls as usebypassrls, '********'::text as passwd, \
      rolvaliduntil as valuntil, s.setconfig as useconfig from pg_catalog.pg_authid \
      left join pg_catalog.pg_db_role_setting s \
      on pg_authid.oid = s.setrole and s.setdatabase = 0 where rolcanlogin",
    ),
    (
        "pg_catalog",
        "pg_tables",
        "select n.nspname as schemaname, c.relname as tablename, \
      pg_catalog.pg_get_userbyid(c.relowner) as tableowner, t.spcname as tablespace, \
      c.relhasindex as hasindexes, c.relhasrules as hasrules, c.relhastriggers as hastriggers, \
      c.relrowsecurity as rowsecurity from pg_catalog.pg_class c \
      left join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
      left join pg_catalog.pg_tablespace t on t.oid = c.reltablespace \
      where c.relkind in ('r', 'p')",
    ),
    (
        "pg_catalog",
        "pg_views",
        "select n.nspname as schemaname, c.relname as viewname, \
      pg_catalog.pg_get_userbyid(c.relowner) as viewowner, \
      pg_catalog.pg_get_viewdef(c.oid) as definition from pg_catalog.pg_class c \
      left join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.relkind = 'v'",
    ),
    (
        "pg_catalog",
        "pg_matviews",
        "select n.nspname as schemaname, c.relname as matviewname, \
      pg_catalog.pg_get_userbyid(c.relowner) as matviewowner, null::name as tablespace, \
      c.relhasindex as hasindexes, c.relispopulated as ispopulated, null::text as definition \
      from pg_catalog.pg_class c left join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
      where c.relkind = 'm'",
    ),
    (
        "pg_catalog",
        "pg_indexes",
        "select n.nspname as schemaname, c.relname as tablename, i.relname as indexname, \
      t.spcname as tablespace, pg_catalog.pg_get_indexdef(i.oid) as indexdef \
      from pg_catalog.pg_index x join pg_catalog.pg_class c on c.oid = x.indrelid \
      join pg_catalog.pg_class i on i.oid = x.indexrelid \
      left join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
      left join pg_catalog.pg_tablespace t on t.oid = i.reltablespace \
      where c.relkind in ('r', 'm', 'p') and i.relkind in ('i', 'I')",
    ),
    (
        "pg_catalog",
        "pg_sequences",
        "select n.nspname as schemaname, c.relname as sequencename, \
      pg_catalog.pg_get_userbyid(c.relowner) as sequenceowner, s.seqtypid::regtype as data_type, \
      s.seqstart as start_value, s.seqmin as min_value, s.seqmax as max_value, \
      s.seqincrement as increment_by, s.seqcycle as cycle, s.seqcache as cache_size, \
      pg_catalog.pg_sequence_last_value(c.oid::regclass) as last_value \
      from pg_catalog.pg_sequence s join pg_catalog.pg_class c on c.oid = s.seqrelid \
      left join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
      where not pg_catalog.pg_is_other_temp_schema(n.oid) and c.relkind = 'S'",
    ),
    ("pg_catalog", "pg_settings", "select * from pg_catalog.pg_show_all_settings()"),
    ("pg_catalog", "pg_stat_activity", "select * from pg_catalog.pg_stat_get_activity(null::int4)"),
    (
        "pg_catalog",
        "pg_prepared_xacts",
        "select p.transaction, p.gid, p.prepared, u.rolname as owner, d.datname as database \
      from pg_catalog.pg_prepared_xact() p left join pg_catalog.pg_authid u on p.ownerid = u.oid \
      left join pg_catalog.pg_database d on p.dbid = d.oid",
    ),
    ("pg_catalog", "pg_locks", "select * from pg_catalog.pg_lock_status()"),
    (
        "pg_catalog",
        "inkling_stat_visibility",
        "select * from pg_catalog.inkling_stat_get_visibility()",
    ),
    ("pg_catalog", "inkling_durability", "select * from pg_catalog.inkling_stat_get_durability()"),
    ("pg_catalog", "pg_stat_wal", "select * from pg_catalog.pg_stat_get_wal()"),
    (
        "pg_catalog",
        "pg_stat_checkpointer",
        "select * from pg_catalog.inkling_stat_get_checkpointer()",
    ),
    (
        "pg_catalog",
        "pg_stat_bgwriter",
        "select pg_catalog.pg_stat_get_bgwriter_buf_written_clean() as buffers_clean, \
      pg_catalog.pg_stat_get_bgwriter_maxwritten_clean() as maxwritten_clean, \
      pg_catalog.pg_stat_get_buf_alloc() as buffers_alloc, \
      pg_catalog.pg_stat_get_bgwriter_stat_reset_time() as stats_reset",
    ),
    (
        "pg_catalog",
        "pg_stat_slru",
        "select name, blks_zeroed, blks_hit, blks_read, blks_written, blks_exists, flushes, \
      truncates, stats_reset from pg_catalog.pg_stat_get_slru()",
    ),
    ("pg_catalog", "pg_timezone_names", "select * from pg_catalog.pg_timezone_names()"),
    (
        "information_schema",
        "schemata",
        "select pg_catalog.current_database() as catalog_name, n.nspname as schema_name, \
      pg_catalog.pg_get_userbyid(n.nspowner) as schema_owner, \
      null::name as default_character_set_catalog, null::name as default_character_set_schema, \
      null::name as default_character_set_name, null::text as sql_path \
      from pg_catalog.pg_namespace n",
    ),
    (
        "information_schema",
        "tables",
        "select pg_catalog.current_database() as table_catalog, n.nspname as table_schema, \
      c.relname as table_name, \
      case when c.relpersistence = 't' then 'LOCAL TEMPORARY' when c.relkind in ('r', 'p') \
      then 'BASE TABLE' when c.relkind = 'v' then 'VIEW' else null end as table_type, \
      null::name as self_referencing_column_name, null::text as reference_generation, \
      null::name as user_defined_type_catalog, null::name as user_defined_type_schema, \
      null::name as user_defined_type_name, \
      case when c.relkind in ('r', 'p') then 'YES' else 'NO' end as is_insertable_into, \
      'NO'::text as is_typed, null::text as commit_action from pg_catalog.pg_namespace n \
      join pg_catalog.pg_class c on n.oid = c.relnamespace where c.relkind in ('r', 'v', 'f', 'p') \
      and not pg_catalog.pg_is_other_temp_schema(n.oid)",
    ),
    (
        "information_schema",
        "columns",
        "select pg_catalog.current_database() as table_catalog, n.nspname as table_schema, \
      c.relname as table_name, a.attname as column_name, a.attnum::int4 as ordinal_position, \
      pg_catalog.pg_get_expr(d.adbin, d.adrelid) as column_default, \
      case when a.attnotnull then 'NO' else 'YES' end as is_nullable, \
      case when t.typelem <> 0 and t.typlen = -1 then 'ARRAY' \
      when t.typnamespace = 11 then pg_catalog.format_type(a.atttypid, null) \
      else 'USER-DEFINED' end as data_type, \
      case when a.atttypid in (1042, 1043) and a.atttypmod <> -1 then a.atttypmod - 4 \
      else null end as character_maximum_length, \
      case when a.atttypid = 21 then 16 when a.atttypid = 23 then 32 when a.atttypid = 20 then 64 \
      when a.atttypid = 700 then 24 when a.atttypid = 701 then 53 \
      when a.atttypid = 1700 and a.atttypmod <> -1 then ((a.atttypmod - 4) >> 16) & 65535 \
      else null end as numeric_precision, \
      case when a.atttypid in (21, 23, 20) then 0 \
      when a.atttypid = 1700 and a.atttypmod <> -1 then (a.atttypmod - 4) & 65535 \
      else null end as numeric_scale, \
      pg_catalog.current_database() as udt_catalog, nt.nspname as udt_schema, \
      t.typname as udt_name, \
      case when a.attidentity in ('a', 'd') then 'YES' else 'NO' end as is_identity, \
      case a.attidentity when 'a' then 'ALWAYS' when 'd' then 'BY DEFAULT' end \
      as identity_generation, s.seqstart::text as identity_start, \
      s.seqincrement::text as identity_increment, s.seqmax::text as identity_maximum, \
      s.seqmin::text as identity_minimum, \
      case when s.seqcycle then 'YES' else 'NO' end as identity_cycle, \
      'NEVER'::text as is_generated, \
      'YES'::text as is_updatable from pg_catalog.pg_attribute a \
      left join pg_catalog.pg_attrdef d on a.attrelid = d.adrelid and a.attnum = d.adnum \
      join pg_catalog.pg_class c on a.attrelid = c.oid \
      join pg_catalog.pg_namespace n on c.relnamespace = n.oid \
      join pg_catalog.pg_type t on a.atttypid = t.oid \
      join pg_catalog.pg_namespace nt on t.typnamespace = nt.oid \
      left join (pg_catalog.pg_depend e join pg_catalog.pg_sequence s \
      on e.classid = 1259 and e.objid = s.seqrelid and e.deptype = 'i') \
      on e.refclassid = 1259 and e.refobjid = c.oid and e.refobjsubid = a.attnum \
      where a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'v', 'f', 'p') \
      and not pg_catalog.pg_is_other_temp_schema(n.oid)",
    ),
    (
        "information_schema",
        "table_constraints",
        "select pg_catalog.current_database() as constraint_catalog, nc.nspname as constraint_schema, \
      k.conname as constraint_name, pg_catalog.current_database() as table_catalog, \
      nr.nspname as table_schema, r.relname as table_name, \
      case k.contype when 'c' then 'CHECK' when 'f' then 'FOREIGN KEY' when 'p' then 'PRIMARY KEY' \
      when 'u' then 'UNIQUE' end as constraint_type, \
      case when k.condeferrable then 'YES' else 'NO' end as is_deferrable, \
      case when k.condeferred then 'YES' else 'NO' end as initially_deferred, \
      'YES'::text as enforced from pg_catalog.pg_constraint k \
      join pg_catalog.pg_class r on k.conrelid = r.oid \
      join pg_catalog.pg_namespace nc on nc.oid = k.connamespace \
      join pg_catalog.pg_namespace nr on nr.oid = r.relnamespace \
      where not pg_catalog.pg_is_other_temp_schema(nr.oid)",
    ),
    (
        "information_schema",
        "key_column_usage",
        "select pg_catalog.current_database() as constraint_catalog, nc.nspname as constraint_schema, \
      k.conname as constraint_name, pg_catalog.current_database() as table_catalog, \
      nr.nspname as table_schema, r.relname as table_name, a.attname as column_name, \
      pg_catalog.array_position(k.conkey, a.attnum) as ordinal_position, \
      pg_catalog.array_position(u.conkey, \
      k.confkey[pg_catalog.array_position(k.conkey, a.attnum)]) as position_in_unique_constraint \
      from pg_catalog.pg_constraint k left join pg_catalog.pg_constraint u \
      on k.contype = 'f' and u.conindid = k.conindid and u.contype in ('p', 'u') \
      join pg_catalog.pg_class r on k.conrelid = r.oid \
      join pg_catalog.pg_namespace nc on nc.oid = k.connamespace \
      join pg_catalog.pg_namespace nr on nr.oid = r.relnamespace \
      join pg_catalog.pg_attribute a on a.attrelid = r.oid and a.attnum = any (k.conkey) \
      where k.contype in ('p', 'u', 'f') \
      and not pg_catalog.pg_is_other_temp_schema(nr.oid)",
    ),
    (
        "information_schema",
        "referential_constraints",
        "select pg_catalog.current_database() as constraint_catalog, \
      ncon.nspname as constraint_schema, con.conname as constraint_name, \
      case when npkc.nspname is null then null else pg_catalog.current_database() end \
      as unique_constraint_catalog, npkc.nspname as unique_constraint_schema, \
      pkc.conname as unique_constraint_name, case con.confmatchtype when 'f' then 'FULL' \
      when 'p' then 'PARTIAL' when 's' then 'NONE' end as match_option, \
      case con.confupdtype when 'c' then 'CASCADE' when 'n' then 'SET NULL' \
      when 'd' then 'SET DEFAULT' when 'r' then 'RESTRICT' when 'a' then 'NO ACTION' end \
      as update_rule, case con.confdeltype when 'c' then 'CASCADE' when 'n' then 'SET NULL' \
      when 'd' then 'SET DEFAULT' when 'r' then 'RESTRICT' when 'a' then 'NO ACTION' end \
      as delete_rule from pg_catalog.pg_constraint con \
      join pg_catalog.pg_namespace ncon on ncon.oid = con.connamespace \
      left join (pg_catalog.pg_constraint pkc \
      join pg_catalog.pg_namespace npkc on npkc.oid = pkc.connamespace) \
      on pkc.conindid = con.conindid and pkc.contype in ('p', 'u') where con.contype = 'f' \
      and not pg_catalog.pg_is_other_temp_schema(ncon.oid)",
    ),
    (
        "information_schema",
        "constraint_column_usage",
        "select pg_catalog.current_database() as table_catalog, n.nspname as table_schema, \
      r.relname as table_name, a.attname as column_name, \
      pg_catalog.current_database() as constraint_catalog, nc.nspname as constraint_schema, \
      k.conname as constraint_name from pg_catalog.pg_constraint k \
      join pg_catalog.pg_class r \
      on r.oid = case when k.contype = 'f' then k.confrelid else k.conrelid end \
      join pg_catalog.pg_namespace n on n.oid = r.relnamespace \
      join pg_catalog.pg_namespace nc on nc.oid = k.connamespace \
      join pg_catalog.pg_attribute a on a.attrelid = r.oid \
      and a.attnum = any (case when k.contype = 'f' then k.confkey else k.conkey end) \
      where k.contype in ('c', 'p', 'u', 'f') \
      and not pg_catalog.pg_is_other_temp_schema(n.oid)",
    ),
    (
        "information_schema",
        "sequences",
        "select pg_catalog.current_database() as sequence_catalog, n.nspname as sequence_schema, \
      c.relname as sequence_name, pg_catalog.format_type(s.seqtypid, null) as data_type, \
      case s.seqtypid when 21 then 16 when 23 then 32 else 64 end as numeric_precision, \
      2 as numeric_precision_radix, 0 as numeric_scale, s.seqstart::text as start_value, \
      s.seqmin::text as minimum_value, s.seqmax::text as maximum_value, \
      s.seqincrement::text as increment, \
      case when s.seqcycle then 'YES' else 'NO' end as cycle_option \
      from pg_catalog.pg_namespace n join pg_catalog.pg_class c on c.relnamespace = n.oid \
      join pg_catalog.pg_sequence s on c.oid = s.seqrelid where c.relkind = 'S' \
      and not exists (select 1 from pg_catalog.pg_depend d \
      where d.classid = 1259 and d.objid = c.oid and d.deptype = 'i')",
    ),
    (
        "information_schema",
        "views",
        "select pg_catalog.current_database() as table_catalog, n.nspname as table_schema, \
      c.relname as table_name, pg_catalog.pg_get_viewdef(c.oid) as view_definition, \
      'NONE'::text as check_option, 'NO'::text as is_updatable, 'NO'::text as is_insertable_into \
      from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
      where c.relkind = 'v' and not pg_catalog.pg_is_other_temp_schema(n.oid)",
    ),
];
