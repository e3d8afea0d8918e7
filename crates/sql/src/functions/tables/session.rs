//! What the session answers: catalog look-ups, settings, sequences, locks, statistics.

use super::builtins;

builtins! { SESSIONS
    89 version() TEXT "ss" = SESSION;
    315 pg_jit_available() BOOL "sv" = SESSION;
    710 getpgusername() NAME "ss" = SESSION;
    745 current_user() NAME "ss" = SESSION;
    746 session_user() NAME "ss" = SESSION;
    817 current_query() TEXT "nv" = SESSION;
    861 current_database() NAME "ss" = SESSION;
    1065 pg_prepared_xact() RECORD "sv" {
        transaction XID gid TEXT prepared TIMESTAMPTZ ownerid OID dbid OID
    } = SESSION_SET;
    1079 regclass(TEXT) REGCLASS "ss" = SESSION;
    1136 pg_stat_get_wal() RECORD "ns" {
        wal_records INT8 wal_fpi INT8 wal_bytes NUMERIC wal_buffers_full INT8 wal_write INT8
        wal_sync INT8 wal_write_time FLOAT8 wal_sync_time FLOAT8 stats_reset TIMESTAMPTZ
    } = SESSION_SET;
    1181 age(XID) INT4 "ss" = SESSION;
    1215 obj_description(OID NAME) TEXT "ss" = SESSION;
    1216 col_description(OID INT4) TEXT "ss" = SESSION;
    1348 obj_description(OID) TEXT "ss" = SESSION;
    1371 pg_lock_status() RECORD "sv" {
        locktype TEXT database OID relation OID page INT4 tuple INT2 virtualxid TEXT
        transactionid XID classid OID objid OID objsubid INT2 virtualtransaction TEXT pid INT4
        mode TEXT granted BOOL fastpath BOOL waitstart TIMESTAMPTZ
    } = SESSION_SET;
    1387 pg_get_constraintdef(OID) TEXT "ss" = SESSION;
    1402 current_schema() NAME "ss" = SESSION;
    1403 current_schemas(BOOL) NAME_ARRAY "ss" = SESSION;
    1573 pg_get_ruledef(OID) TEXT "ss" = SESSION;
    1574 nextval(REGCLASS) INT8 "sv" = SESSION;
    1575 currval(REGCLASS) INT8 "sv" = SESSION;
    1576 setval(REGCLASS INT8) INT8 "sv" = SESSION;
    1640 pg_get_viewdef(TEXT) TEXT "ss" = SESSION;
    1641 pg_get_viewdef(OID) TEXT "ss" = SESSION;
    1642 pg_get_userbyid(OID) NAME "ss" = SESSION;
    1643 pg_get_indexdef(OID) TEXT "ss" = SESSION;
    1662 pg_get_triggerdef(OID) TEXT "ss" = SESSION;
    1665 pg_get_serial_sequence(TEXT TEXT) TEXT "ss" = SESSION;
    1686 pg_get_keywords() RECORD "ss" {
        word TEXT catcode CHAR barelabel BOOL catdesc TEXT baredesc TEXT
    } = SESSION_SET;
    1689 aclexplode(ACLITEM_ARRAY) RECORD "ss" {
        grantor OID grantee OID privilege_type TEXT is_grantable BOOL
    } = SESSION_SET;
    1716 pg_get_expr(PG_NODE_TREE OID) TEXT "ss" = SESSION;
    1765 setval(REGCLASS INT8 BOOL) INT8 "sv" = SESSION;
    1922 has_table_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    1923 has_table_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    1924 has_table_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    1925 has_table_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    1926 has_table_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    1927 has_table_privilege(OID TEXT) BOOL "ss" = SESSION;
    1928 pg_stat_get_numscans(OID) INT8 "ss" = SESSION;
    1929 pg_stat_get_tuples_returned(OID) INT8 "ss" = SESSION;
    1930 pg_stat_get_tuples_fetched(OID) INT8 "ss" = SESSION;
    1931 pg_stat_get_tuples_inserted(OID) INT8 "ss" = SESSION;
    1932 pg_stat_get_tuples_updated(OID) INT8 "ss" = SESSION;
    1933 pg_stat_get_tuples_deleted(OID) INT8 "ss" = SESSION;
    1934 pg_stat_get_blocks_fetched(OID) INT8 "ss" = SESSION;
    1935 pg_stat_get_blocks_hit(OID) INT8 "ss" = SESSION;
    1936 pg_stat_get_backend_idset() INT4 "ss" = SESSION_SET;
    1937 pg_stat_get_backend_pid(INT4) INT4 "ss" = SESSION;
    1941 pg_stat_get_db_numbackends(OID) INT4 "ss" = SESSION;
    1942 pg_stat_get_db_xact_commit(OID) INT8 "ss" = SESSION;
    1943 pg_stat_get_db_xact_rollback(OID) INT8 "ss" = SESSION;
    1944 pg_stat_get_db_blocks_fetched(OID) INT8 "ss" = SESSION;
    1945 pg_stat_get_db_blocks_hit(OID) INT8 "ss" = SESSION;
    1972 pg_stat_get_tuples_hot_updated(OID) INT8 "ss" = SESSION;
    1993 shobj_description(OID NAME) TEXT "ss" = SESSION;
    2022 pg_stat_get_activity(INT4) RECORD "nv" {
        datid OID datname NAME pid INT4 leader_pid INT4 usesysid OID usename NAME
        application_name TEXT client_addr TEXT client_hostname TEXT client_port INT4
        backend_start TIMESTAMPTZ xact_start TIMESTAMPTZ query_start TIMESTAMPTZ
        state_change TIMESTAMPTZ wait_event_type TEXT wait_event TEXT state TEXT
        backend_xid XID backend_xmin XID query_id INT8 query TEXT backend_type TEXT
    } = SESSION_SET;
    2026 pg_backend_pid() INT4 "ss" = SESSION;
    2034 pg_conf_load_time() TIMESTAMPTZ "ss" = SESSION;
    2077 current_setting(TEXT) TEXT "ss" = SESSION;
    2078 set_config(TEXT TEXT BOOL) TEXT "nv" = SESSION;
    2079 pg_table_is_visible(OID) BOOL "ss" = SESSION;
    2080 pg_type_is_visible(OID) BOOL "ss" = SESSION;
    2081 pg_function_is_visible(OID) BOOL "ss" = SESSION;
    2082 pg_operator_is_visible(OID) BOOL "ss" = SESSION;
    2083 pg_opclass_is_visible(OID) BOOL "ss" = SESSION;
    2084 pg_show_all_settings() RECORD "ss" {
        name TEXT setting TEXT unit TEXT category TEXT short_desc TEXT extra_desc TEXT context TEXT
        vartype TEXT source TEXT min_val TEXT max_val TEXT enumvals TEXT_ARRAY boot_val TEXT
        reset_val TEXT sourcefile TEXT sourceline INT4 pending_restart BOOL
    } = SESSION_SET;
    2093 pg_conversion_is_visible(OID) BOOL "ss" = SESSION;
    2096 pg_terminate_backend(INT4 INT8) BOOL "nv1" = SESSION;
    2098 pg_get_functiondef(OID) TEXT "ss" = SESSION;
    2137 pg_stat_force_next_flush() VOID "nv" = SESSION;
    2162 pg_get_function_arguments(OID) TEXT "ss" = SESSION;
    2165 pg_get_function_result(OID) TEXT "ss" = SESSION;
    2168 pg_database_size(NAME) INT8 "sv" = SESSION;
    2171 pg_cancel_backend(INT4) BOOL "sv" = SESSION;
    2181 has_sequence_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    2182 has_sequence_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    2183 has_sequence_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    2184 has_sequence_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    2185 has_sequence_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    2186 has_sequence_privilege(OID TEXT) BOOL "ss" = SESSION;
    2197 inet_client_port() INT4 "ns" = SESSION;
    2199 inet_server_port() INT4 "ns" = SESSION;
    2230 pg_stat_clear_snapshot() VOID "nv" = SESSION;
    2232 pg_get_function_identity_arguments(OID) TEXT "ss" = SESSION;
    2250 has_database_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    2251 has_database_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    2252 has_database_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    2253 has_database_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    2254 has_database_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    2255 has_database_privilege(OID TEXT) BOOL "ss" = SESSION;
    2256 has_function_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    2257 has_function_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    2258 has_function_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    2259 has_function_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    2260 has_function_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    2261 has_function_privilege(OID TEXT) BOOL "ss" = SESSION;
    2262 has_language_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    2263 has_language_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    2264 has_language_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    2265 has_language_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    2266 has_language_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    2267 has_language_privilege(OID TEXT) BOOL "ss" = SESSION;
    2268 has_schema_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    2269 has_schema_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    2270 has_schema_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    2271 has_schema_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    2272 has_schema_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    2273 has_schema_privilege(OID TEXT) BOOL "ss" = SESSION;
    2274 pg_stat_reset() VOID "nv" = SESSION;
    2282 pg_get_backend_memory_contexts() RECORD "sv" {
        name TEXT ident TEXT parent TEXT level INT4 total_bytes INT8 total_nblocks INT8
        free_bytes INT8 free_chunks INT8 used_bytes INT8
    } = SESSION_SET;
    2286 pg_total_relation_size(REGCLASS) INT8 "sv" = SESSION;
    2306 pg_stat_get_slru() RECORD "ns" {
        name TEXT blks_zeroed INT8 blks_hit INT8 blks_read INT8 blks_written INT8 blks_exists INT8
        flushes INT8 truncates INT8 stats_reset TIMESTAMPTZ
    } = SESSION_SET;
    2307 pg_stat_reset_slru(TEXT) VOID "nv" = SESSION;
    2322 pg_tablespace_size(OID) INT8 "sv" = SESSION;
    2323 pg_tablespace_size(NAME) INT8 "sv" = SESSION;
    2324 pg_database_size(OID) INT8 "sv" = SESSION;
    2325 pg_relation_size(REGCLASS) INT8 "sv" = SESSION;
    2332 pg_relation_size(REGCLASS TEXT) INT8 "sv" = SESSION;
    2390 has_tablespace_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    2391 has_tablespace_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    2392 has_tablespace_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    2393 has_tablespace_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    2394 has_tablespace_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    2395 has_tablespace_privilege(OID TEXT) BOOL "ss" = SESSION;
    2504 pg_get_ruledef(OID BOOL) TEXT "ss" = SESSION;
    2505 pg_get_viewdef(TEXT BOOL) TEXT "ss" = SESSION;
    2506 pg_get_viewdef(OID BOOL) TEXT "ss" = SESSION;
    2507 pg_get_indexdef(OID INT4 BOOL) TEXT "ss" = SESSION;
    2508 pg_get_constraintdef(OID BOOL) TEXT "ss" = SESSION;
    2509 pg_get_expr(PG_NODE_TREE OID BOOL) TEXT "ss" = SESSION;
    2510 pg_prepared_statement() RECORD "ss" {
        name TEXT statement TEXT prepare_time TIMESTAMPTZ parameter_types REGTYPE_ARRAY
        from_sql BOOL generic_plans INT8 custom_plans INT8
    } = SESSION_SET;
    2511 pg_cursor() RECORD "ss" {
        name TEXT statement TEXT is_holdable BOOL is_binary BOOL is_scrollable BOOL
        creation_time TIMESTAMPTZ
    } = SESSION_SET;
    2556 pg_tablespace_databases(OID) OID "ss" = SESSION_SET;
    2559 lastval() INT8 "sv" = SESSION;
    2560 pg_postmaster_start_time() TIMESTAMPTZ "ss" = SESSION;
    2561 pg_blocking_pids(INT4) INT4_ARRAY "sv" = SESSION;
    2621 pg_reload_conf() BOOL "sv" = SESSION;
    2622 pg_rotate_logfile() BOOL "sv" = SESSION;
    2625 pg_ls_dir(TEXT) TEXT "sv" = SESSION_SET;
    2626 pg_sleep(FLOAT8) VOID "sv" = SESSION;
    2705 pg_has_role(NAME NAME TEXT) BOOL "ss" = SESSION;
    2706 pg_has_role(NAME OID TEXT) BOOL "ss" = SESSION;
    2707 pg_has_role(OID NAME TEXT) BOOL "ss" = SESSION;
    2708 pg_has_role(OID OID TEXT) BOOL "ss" = SESSION;
    2709 pg_has_role(NAME TEXT) BOOL "ss" = SESSION;
    2710 pg_has_role(OID TEXT) BOOL "ss" = SESSION;
    2730 pg_get_triggerdef(OID BOOL) TEXT "ss" = SESSION;
    2758 pg_stat_get_db_tuples_returned(OID) INT8 "ss" = SESSION;
    2759 pg_stat_get_db_tuples_fetched(OID) INT8 "ss" = SESSION;
    2760 pg_stat_get_db_tuples_inserted(OID) INT8 "ss" = SESSION;
    2761 pg_stat_get_db_tuples_updated(OID) INT8 "ss" = SESSION;
    2762 pg_stat_get_db_tuples_deleted(OID) INT8 "ss" = SESSION;
    2769 pg_stat_get_bgwriter_timed_checkpoints() INT8 "ss" = SESSION;
    2770 pg_stat_get_bgwriter_requested_checkpoints() INT8 "ss" = SESSION;
    2771 pg_stat_get_bgwriter_buf_written_checkpoints() INT8 "ss" = SESSION;
    2772 pg_stat_get_bgwriter_buf_written_clean() INT8 "ss" = SESSION;
    2773 pg_stat_get_bgwriter_maxwritten_clean() INT8 "ss" = SESSION;
    2775 pg_stat_get_buf_written_backend() INT8 "ss" = SESSION;
    2781 pg_stat_get_last_vacuum_time(OID) TIMESTAMPTZ "ss" = SESSION;
    2782 pg_stat_get_last_autovacuum_time(OID) TIMESTAMPTZ "ss" = SESSION;
    2783 pg_stat_get_last_analyze_time(OID) TIMESTAMPTZ "ss" = SESSION;
    2784 pg_stat_get_last_autoanalyze_time(OID) TIMESTAMPTZ "ss" = SESSION;
    2844 pg_stat_get_db_blk_read_time(OID) FLOAT8 "ss" = SESSION;
    2845 pg_stat_get_db_blk_write_time(OID) FLOAT8 "ss" = SESSION;
    2848 pg_switch_wal() PG_LSN "sv" = SESSION;
    2849 pg_current_wal_lsn() PG_LSN "sv" = SESSION;
    2851 pg_walfile_name(PG_LSN) TEXT "si" = SESSION;
    2852 pg_current_wal_insert_lsn() PG_LSN "sv" = SESSION;
    2854 pg_my_temp_schema() OID "ss" = SESSION;
    2855 pg_is_other_temp_schema(OID) BOOL "ss" = SESSION;
    2859 pg_stat_get_buf_alloc() INT8 "ss" = SESSION;
    2878 pg_stat_get_live_tuples(OID) INT8 "ss" = SESSION;
    2879 pg_stat_get_dead_tuples(OID) INT8 "ss" = SESSION;
    2880 pg_advisory_lock(INT8) VOID "sv" = SESSION;
    2881 pg_advisory_lock_shared(INT8) VOID "sv" = SESSION;
    2882 pg_try_advisory_lock(INT8) BOOL "sv" = SESSION;
    2883 pg_try_advisory_lock_shared(INT8) BOOL "sv" = SESSION;
    2884 pg_advisory_unlock(INT8) BOOL "sv" = SESSION;
    2885 pg_advisory_unlock_shared(INT8) BOOL "sv" = SESSION;
    2886 pg_advisory_lock(INT4 INT4) VOID "sv" = SESSION;
    2887 pg_advisory_lock_shared(INT4 INT4) VOID "sv" = SESSION;
    2888 pg_try_advisory_lock(INT4 INT4) BOOL "sv" = SESSION;
    2889 pg_try_advisory_lock_shared(INT4 INT4) BOOL "sv" = SESSION;
    2890 pg_advisory_unlock(INT4 INT4) BOOL "sv" = SESSION;
    2891 pg_advisory_unlock_shared(INT4 INT4) BOOL "sv" = SESSION;
    2892 pg_advisory_unlock_all() VOID "sv" = SESSION;
    2943 txid_current() INT8 "ss" = SESSION;
    2997 pg_table_size(REGCLASS) INT8 "sv" = SESSION;
    2998 pg_indexes_size(REGCLASS) INT8 "sv" = SESSION;
    2999 pg_relation_filenode(REGCLASS) OID "ss" = SESSION;
    3000 has_foreign_data_wrapper_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    3001 has_foreign_data_wrapper_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    3002 has_foreign_data_wrapper_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    3003 has_foreign_data_wrapper_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    3004 has_foreign_data_wrapper_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    3005 has_foreign_data_wrapper_privilege(OID TEXT) BOOL "ss" = SESSION;
    3006 has_server_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    3007 has_server_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    3008 has_server_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    3009 has_server_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    3010 has_server_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    3011 has_server_privilege(OID TEXT) BOOL "ss" = SESSION;
    3012 has_column_privilege(NAME TEXT TEXT TEXT) BOOL "ss" = SESSION;
    3013 has_column_privilege(NAME TEXT INT2 TEXT) BOOL "ss" = SESSION;
    3014 has_column_privilege(NAME OID TEXT TEXT) BOOL "ss" = SESSION;
    3015 has_column_privilege(NAME OID INT2 TEXT) BOOL "ss" = SESSION;
    3016 has_column_privilege(OID TEXT TEXT TEXT) BOOL "ss" = SESSION;
    3017 has_column_privilege(OID TEXT INT2 TEXT) BOOL "ss" = SESSION;
    3018 has_column_privilege(OID OID TEXT TEXT) BOOL "ss" = SESSION;
    3019 has_column_privilege(OID OID INT2 TEXT) BOOL "ss" = SESSION;
    3020 has_column_privilege(TEXT TEXT TEXT) BOOL "ss" = SESSION;
    3021 has_column_privilege(TEXT INT2 TEXT) BOOL "ss" = SESSION;
    3022 has_column_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    3023 has_column_privilege(OID INT2 TEXT) BOOL "ss" = SESSION;
    3024 has_any_column_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    3025 has_any_column_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    3026 has_any_column_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    3027 has_any_column_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    3028 has_any_column_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    3029 has_any_column_privilege(OID TEXT) BOOL "ss" = SESSION;
    3034 pg_relation_filepath(REGCLASS) TEXT "ss" = SESSION;
    3035 pg_listening_channels() TEXT "ss" = SESSION_SET;
    3037 pg_stat_get_xact_numscans(OID) INT8 "sv" = SESSION;
    3038 pg_stat_get_xact_tuples_returned(OID) INT8 "sv" = SESSION;
    3039 pg_stat_get_xact_tuples_fetched(OID) INT8 "sv" = SESSION;
    3040 pg_stat_get_xact_tuples_inserted(OID) INT8 "sv" = SESSION;
    3041 pg_stat_get_xact_tuples_updated(OID) INT8 "sv" = SESSION;
    3042 pg_stat_get_xact_tuples_deleted(OID) INT8 "sv" = SESSION;
    3043 pg_stat_get_xact_tuples_hot_updated(OID) INT8 "sv" = SESSION;
    3044 pg_stat_get_xact_blocks_fetched(OID) INT8 "sv" = SESSION;
    3045 pg_stat_get_xact_blocks_hit(OID) INT8 "sv" = SESSION;
    3046 pg_stat_get_xact_function_calls(OID) INT8 "sv" = SESSION;
    3047 pg_stat_get_xact_function_total_time(OID) FLOAT8 "sv" = SESSION;
    3048 pg_stat_get_xact_function_self_time(OID) FLOAT8 "sv" = SESSION;
    3054 pg_stat_get_vacuum_count(OID) INT8 "ss" = SESSION;
    3055 pg_stat_get_autovacuum_count(OID) INT8 "ss" = SESSION;
    3056 pg_stat_get_analyze_count(OID) INT8 "ss" = SESSION;
    3057 pg_stat_get_autoanalyze_count(OID) INT8 "ss" = SESSION;
    3063 pg_stat_get_buf_fsync_backend() INT8 "ss" = SESSION;
    3065 pg_stat_get_db_conflict_tablespace(OID) INT8 "ss" = SESSION;
    3066 pg_stat_get_db_conflict_lock(OID) INT8 "ss" = SESSION;
    3067 pg_stat_get_db_conflict_snapshot(OID) INT8 "ss" = SESSION;
    3068 pg_stat_get_db_conflict_bufferpin(OID) INT8 "ss" = SESSION;
    3069 pg_stat_get_db_conflict_startup_deadlock(OID) INT8 "ss" = SESSION;
    3070 pg_stat_get_db_conflict_all(OID) INT8 "ss" = SESSION;
    3073 pg_is_wal_replay_paused() BOOL "sv" = SESSION;
    3074 pg_stat_get_db_stat_reset_time(OID) TIMESTAMPTZ "ss" = SESSION;
    3075 pg_stat_get_bgwriter_stat_reset_time() TIMESTAMPTZ "ss" = SESSION;
    3078 pg_sequence_parameters(OID) RECORD "ss" {
        start_value INT8 minimum_value INT8 maximum_value INT8 increment INT8 cycle_option BOOL
        cache_size INT8 data_type OID
    } = SESSION;
    3082 pg_available_extensions() RECORD "ss" {
        name NAME default_version TEXT comment TEXT
    } = SESSION_SET;
    3083 pg_available_extension_versions() RECORD "ss" {
        name NAME version TEXT superuser BOOL trusted BOOL relocatable BOOL schema NAME
        requires NAME_ARRAY comment TEXT
    } = SESSION_SET;
    3084 pg_extension_update_paths(NAME) RECORD "ss" {
        source TEXT target TEXT path TEXT
    } = SESSION_SET;
    3089 pg_advisory_xact_lock(INT8) VOID "sv" = SESSION;
    3090 pg_advisory_xact_lock_shared(INT8) VOID "sv" = SESSION;
    3091 pg_try_advisory_xact_lock(INT8) BOOL "sv" = SESSION;
    3092 pg_try_advisory_xact_lock_shared(INT8) BOOL "sv" = SESSION;
    3093 pg_advisory_xact_lock(INT4 INT4) VOID "sv" = SESSION;
    3094 pg_advisory_xact_lock_shared(INT4 INT4) VOID "sv" = SESSION;
    3095 pg_try_advisory_xact_lock(INT4 INT4) BOOL "sv" = SESSION;
    3096 pg_try_advisory_xact_lock_shared(INT4 INT4) BOOL "sv" = SESSION;
    3099 pg_stat_get_wal_senders() RECORD "ns" {
        pid INT4 state TEXT sent_lsn PG_LSN write_lsn PG_LSN flush_lsn PG_LSN replay_lsn PG_LSN
        write_lag INTERVAL flush_lag INTERVAL replay_lag INTERVAL sync_priority INT4 sync_state TEXT
        reply_time TIMESTAMPTZ
    } = SESSION_SET;
    3138 has_type_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    3139 has_type_privilege(NAME OID TEXT) BOOL "ss" = SESSION;
    3140 has_type_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    3141 has_type_privilege(OID OID TEXT) BOOL "ss" = SESSION;
    3142 has_type_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    3143 has_type_privilege(OID TEXT) BOOL "ss" = SESSION;
    3150 pg_stat_get_db_temp_files(OID) INT8 "ss" = SESSION;
    3151 pg_stat_get_db_temp_bytes(OID) INT8 "ss" = SESSION;
    3152 pg_stat_get_db_deadlocks(OID) INT8 "ss" = SESSION;
    3159 pg_get_viewdef(OID INT4) TEXT "ss" = SESSION;
    3160 pg_stat_get_checkpoint_write_time() FLOAT8 "ss" = SESSION;
    3161 pg_stat_get_checkpoint_sync_time() FLOAT8 "ss" = SESSION;
    3163 pg_trigger_depth() INT4 "ss" = SESSION;
    3177 pg_stat_get_mod_since_analyze(OID) INT8 "ss" = SESSION;
    3195 pg_stat_get_archiver() RECORD "ns" {
        archived_count INT8 last_archived_wal TEXT last_archived_time TIMESTAMPTZ failed_count INT8
        last_failed_wal TEXT last_failed_time TIMESTAMPTZ stats_reset TIMESTAMPTZ
    } = SESSION_SET;
    3294 current_setting(TEXT BOOL) TEXT "ss" = SESSION;
    3296 pg_notification_queue_usage() FLOAT8 "sv" = SESSION;
    3297 pg_ls_dir(TEXT BOOL BOOL) TEXT "sv" = SESSION_SET;
    3298 row_security_active(OID) BOOL "ss" = SESSION;
    3299 row_security_active(TEXT) BOOL "ss" = SESSION;
    3318 pg_stat_get_progress_info(TEXT) RECORD "ss" {
        pid INT4 datid OID relid OID param1 INT8 param2 INT8 param3 INT8 param4 INT8 param5 INT8
        param6 INT8 param7 INT8 param8 INT8 param9 INT8 param10 INT8 param11 INT8 param12 INT8
        param13 INT8 param14 INT8 param15 INT8 param16 INT8 param17 INT8 param18 INT8 param19 INT8
        param20 INT8
    } = SESSION_SET;
    3329 pg_show_all_file_settings() RECORD "sv" {
        sourcefile TEXT sourceline INT4 seqno INT4 name TEXT setting TEXT applied BOOL error TEXT
    } = SESSION_SET;
    3330 pg_current_wal_flush_lsn() PG_LSN "sv" = SESSION;
    3348 txid_current_if_assigned() INT8 "ss" = SESSION;
    3352 pg_get_partkeydef(OID) TEXT "ss" = SESSION;
    3353 pg_ls_logdir() RECORD "sv" { name TEXT size INT8 modification TIMESTAMPTZ } = SESSION_SET;
    3354 pg_ls_waldir() RECORD "sv" { name TEXT size INT8 modification TIMESTAMPTZ } = SESSION_SET;
    3360 txid_status(INT8) TEXT "sv" = SESSION;
    3376 pg_safe_snapshot_blocking_pids(INT4) INT4_ARRAY "sv" = SESSION;
    3378 pg_isolation_test_session_is_blocked(INT4 INT4_ARRAY) BOOL "sv" = SESSION;
    3400 pg_config() RECORD "ss" { name TEXT setting TEXT } = SESSION_SET;
    3401 pg_hba_file_rules() RECORD "sv" {
        line_number INT4 type TEXT database TEXT_ARRAY user_name TEXT_ARRAY address TEXT
        netmask TEXT auth_method TEXT options TEXT_ARRAY error TEXT
    } = SESSION_SET;
    3403 pg_statistics_obj_is_visible(OID) BOOL "ss" = SESSION;
    3408 pg_get_partition_constraintdef(OID) TEXT "ss" = SESSION;
    3415 pg_get_statisticsobjdef(OID) TEXT "ss" = SESSION;
    3423 pg_partition_tree(REGCLASS) RECORD "sv" {
        relid REGCLASS parentrelid REGCLASS isleaf BOOL level INT4
    } = SESSION_SET;
    3424 pg_partition_root(REGCLASS) REGCLASS "si" = SESSION;
    3425 pg_partition_ancestors(REGCLASS) REGCLASS "sv" { relid REGCLASS } = SESSION_SET;
    3426 pg_stat_get_db_checksum_failures(OID) INT8 "ss" = SESSION;
    3428 pg_stat_get_db_checksum_last_failure(OID) TIMESTAMPTZ "ss" = SESSION;
    3441 pg_control_system() RECORD "sv" {
        pg_control_version INT4 catalog_version_no INT4 system_identifier INT8
        pg_control_last_modified TIMESTAMPTZ
    } = SESSION_SET;
    3442 pg_control_checkpoint() RECORD "sv" {
        checkpoint_lsn PG_LSN redo_lsn PG_LSN redo_wal_file TEXT timeline_id INT4
        prev_timeline_id INT4 full_page_writes BOOL next_xid TEXT next_oid OID next_multixact_id XID
        next_multi_offset XID oldest_xid XID oldest_xid_dbid OID oldest_active_xid XID
        oldest_multi_xid XID oldest_multi_dbid OID oldest_commit_ts_xid XID newest_commit_ts_xid XID
        checkpoint_time TIMESTAMPTZ
    } = SESSION_SET;
    3443 pg_control_recovery() RECORD "sv" {
        min_recovery_end_lsn PG_LSN min_recovery_end_timeline INT4 backup_start_lsn PG_LSN
        backup_end_lsn PG_LSN end_of_backup_record_required BOOL
    } = SESSION_SET;
    3444 pg_control_init() RECORD "sv" {
        max_data_alignment INT4 database_block_size INT4 blocks_per_segment INT4 wal_block_size INT4
        bytes_per_wal_segment INT4 max_identifier_length INT4 max_index_columns INT4
        max_toast_chunk_size INT4 large_object_chunk_size INT4 float8_pass_by_value BOOL
        data_page_checksum_version INT4
    } = SESSION_SET;
    3454 pg_filenode_relation(OID OID) REGCLASS "ss" = SESSION;
    3476 to_regoperator(TEXT) REGOPERATOR "ss" = SESSION;
    3479 to_regprocedure(TEXT) REGPROCEDURE "ss" = SESSION;
    3492 to_regoper(TEXT) REGOPER "ss" = SESSION;
    3493 to_regtype(TEXT) REGTYPE "ss" = SESSION;
    3494 to_regproc(TEXT) REGPROC "ss" = SESSION;
    3495 to_regclass(TEXT) REGCLASS "ss" = SESSION;
    3537 pg_describe_object(OID OID INT4) TEXT "ss" = SESSION;
    3581 pg_xact_commit_timestamp(XID) TIMESTAMPTZ "sv" = SESSION;
    3756 pg_ts_parser_is_visible(OID) BOOL "ss" = SESSION;
    3757 pg_ts_dict_is_visible(OID) BOOL "ss" = SESSION;
    3758 pg_ts_config_is_visible(OID) BOOL "ss" = SESSION;
    3768 pg_ts_template_is_visible(OID) BOOL "ss" = SESSION;
    3775 pg_stat_reset_shared(TEXT) VOID "nv1" = SESSION;
    3776 pg_stat_reset_single_table_counters(OID) VOID "sv" = SESSION;
    3778 pg_tablespace_location(OID) TEXT "ss" = SESSION;
    3781 pg_get_replication_slots() RECORD "ns" {
        slot_name NAME plugin NAME slot_type TEXT datoid OID temporary BOOL active BOOL
        active_pid INT4 xmin XID catalog_xmin XID restart_lsn PG_LSN confirmed_flush_lsn PG_LSN
        wal_status TEXT safe_wal_size INT8 two_phase BOOL
    } = SESSION_SET;
    3788 pg_stat_get_snapshot_timestamp() TIMESTAMPTZ "ss" = SESSION;
    3800 pg_current_logfile() TEXT "nv" = SESSION;
    3801 pg_current_logfile(TEXT) TEXT "nv" = SESSION;
    3808 pg_get_function_arg_default(OID INT4) TEXT "ss" = SESSION;
    3809 pg_export_snapshot() TEXT "sv" = SESSION;
    3810 pg_is_in_recovery() BOOL "sv" = SESSION;
    3815 pg_collation_is_visible(OID) BOOL "ss" = SESSION;
    3820 pg_last_wal_receive_lsn() PG_LSN "sv" = SESSION;
    3821 pg_last_wal_replay_lsn() PG_LSN "sv" = SESSION;
    3829 pg_opfamily_is_visible(OID) BOOL "ss" = SESSION;
    3830 pg_last_xact_replay_timestamp() TIMESTAMPTZ "sv" = SESSION;
    3839 pg_identify_object(OID OID INT4) RECORD "ss" {
        type TEXT schema TEXT name TEXT identity TEXT
    } = SESSION_SET;
    3842 pg_relation_is_updatable(REGCLASS BOOL) INT4 "ss" = SESSION;
    3843 pg_column_is_updatable(REGCLASS INT2 BOOL) BOOL "ss" = SESSION;
    3935 pg_sleep_for(INTERVAL) VOID "sv" = SESSION;
    3936 pg_sleep_until(TIMESTAMPTZ) VOID "sv" = SESSION;
    3939 mxid_age(XID) INT4 "ss" = SESSION;
    3943 acldefault(CHAR OID) ACLITEM_ARRAY "si" = SESSION;
    3954 pg_get_object_address(TEXT TEXT_ARRAY TEXT_ARRAY) RECORD "ss" {
        classid OID objid OID objsubid INT4
    } = SESSION_SET;
    4032 pg_sequence_last_value(REGCLASS) INT8 "sv" = SESSION;
    9450 inkling_sequence(REGCLASS) RECORD "sv" {
        last_value INT8 log_cnt INT8 is_called BOOL
    } = SESSION_SET;
    4086 to_regnamespace(TEXT) REGNAMESPACE "ss" = SESSION;
    4093 to_regrole(TEXT) REGROLE "ss" = SESSION;
    4195 to_regcollation(TEXT) REGCOLLATION "ss" = SESSION;
    4543 pg_log_backend_memory_contexts(INT4) BOOL "sv" = SESSION;
    5029 pg_ls_tmpdir() RECORD "sv" { name TEXT size INT8 modification TIMESTAMPTZ } = SESSION_SET;
    5030 pg_ls_tmpdir(OID) RECORD "sv" {
        name TEXT size INT8 modification TIMESTAMPTZ
    } = SESSION_SET;
    5052 pg_get_shmem_allocations() RECORD "sv" {
        name TEXT off INT8 size INT8 allocated_size INT8
    } = SESSION_SET;
    5053 pg_stat_get_ins_since_vacuum(OID) INT8 "ss" = SESSION;
    5059 pg_current_xact_id() XID8 "ss" = SESSION;
    5060 pg_current_xact_id_if_assigned() XID8 "ss" = SESSION;
    5066 pg_xact_status(XID8) TEXT "sv" = SESSION;
    6119 pg_get_publication_tables(TEXT) RECORD "ss" {
        relid OID attrs INT2VECTOR qual PG_NODE_TREE
    } = SESSION_SET;
    6120 pg_get_replica_identity_index(REGCLASS) REGCLASS "ss" = SESSION;
    6121 pg_relation_is_publishable(REGCLASS) BOOL "ss" = SESSION;
    6173 pg_get_statisticsobjdef_expressions(OID) TEXT_ARRAY "ss" = SESSION;
    6174 pg_get_statisticsobjdef_columns(OID) TEXT "ss" = SESSION;
    6185 pg_stat_get_db_session_time(OID) FLOAT8 "ss" = SESSION;
    6186 pg_stat_get_db_active_time(OID) FLOAT8 "ss" = SESSION;
    6187 pg_stat_get_db_idle_in_transaction_time(OID) FLOAT8 "ss" = SESSION;
    6188 pg_stat_get_db_sessions(OID) INT8 "ss" = SESSION;
    6189 pg_stat_get_db_sessions_abandoned(OID) INT8 "ss" = SESSION;
    6190 pg_stat_get_db_sessions_fatal(OID) INT8 "ss" = SESSION;
    6191 pg_stat_get_db_sessions_killed(OID) INT8 "ss" = SESSION;
    6197 pg_get_function_sqlbody(OID) TEXT "ss" = SESSION;
    6205 has_parameter_privilege(NAME TEXT TEXT) BOOL "ss" = SESSION;
    6206 has_parameter_privilege(OID TEXT TEXT) BOOL "ss" = SESSION;
    6207 has_parameter_privilege(TEXT TEXT) BOOL "ss" = SESSION;
    6240 pg_settings_get_flags(TEXT) TEXT_ARRAY "ss" = SESSION;
    6248 pg_stat_get_recovery_prefetch() RECORD "sv" {
        stats_reset TIMESTAMPTZ prefetch INT8 hit INT8 skip_init INT8 skip_new INT8 skip_fpw INT8
        skip_rep INT8 wal_distance INT4 block_distance INT4 io_depth INT4
    } = SESSION_SET;
    9421 inkling_stat_get_checkpointer() RECORD "nv" {
        num_timed INT8 num_requested INT8 num_done INT8 restartpoints_timed INT8
        restartpoints_req INT8 restartpoints_done INT8 write_time FLOAT8 sync_time FLOAT8
        buffers_written INT8 slru_written INT8 stats_reset TIMESTAMPTZ
    } = SESSION_SET;
}
