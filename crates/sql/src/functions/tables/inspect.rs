//! What lets a person look at the bits: pages, visibility maps, and who knew a transaction's fate.
//!
//! The functions of PostgreSQL's contrib modules pageinspect, pg_visibility and pg_buffercache,
//! with their column names, are built in here; they take a table and a block where pageinspect
//! takes a page's bytes. Columns that start with `frame_` tell what memory knows beside the page.

use super::builtins;

builtins! { INSPECT
    9401 inkling_stat_get_visibility() RECORD "nv" {
        tuples_checked INT8 by_frame_summary INT8 by_frame_hint INT8 by_tuple_hint INT8
        by_session_cache INT8 by_status_window INT8 by_commit_log INT8 hints_refused INT8
        hints_set_on_write_back INT8 pages_dirtied_by_hints INT8 stats_reset TIMESTAMPTZ
    } = SESSION_SET;
    9420 inkling_stat_get_durability() RECORD "nv" {
        schemaname NAME relname NAME relid OID level TEXT max_loss INTERVAL last_commit_lsn PG_LSN
        bytes_behind INT8 ms_behind FLOAT8 missed INT8 worst_late_ms FLOAT8
    } = SESSION_SET;
    9402 page_header(REGCLASS INT8) RECORD "sv" {
        lsn PG_LSN checksum INT4 flags INT2 lower INT4 upper INT4 special INT4 pagesize INT4
        version INT2 prune_xid XID xid_base XID8 frame_summary PG_LSN frame_inserter XID8
    } = SESSION_SET;
    9403 heap_page_items(REGCLASS INT8) RECORD "sv" {
        lp INT2 lp_off INT2 lp_flags INT2 lp_len INT2 t_xmin XID t_xmax XID t_field3 INT4
        t_ctid TID t_infomask2 INT4 t_infomask INT4 t_hoff INT2 t_bits TEXT t_oid OID
        t_data BYTEA frame_infomask INT4
    } = SESSION_SET;
    9404 heap_tuple_infomask_flags(INT4 INT4) RECORD "si" {
        raw_flags TEXT_ARRAY combined_flags TEXT_ARRAY
    } = SESSION_SET;
    9405 pg_visibility_map(REGCLASS INT8) RECORD "sv" {
        all_visible BOOL all_frozen BOOL
    } = SESSION_SET;
    9406 pg_visibility_map(REGCLASS) RECORD "sv" {
        blkno INT8 all_visible BOOL all_frozen BOOL
    } = SESSION_SET;
    9407 pg_visibility(REGCLASS INT8) RECORD "sv" {
        all_visible BOOL all_frozen BOOL pd_all_visible BOOL
    } = SESSION_SET;
    9408 pg_visibility(REGCLASS) RECORD "sv" {
        blkno INT8 all_visible BOOL all_frozen BOOL pd_all_visible BOOL
    } = SESSION_SET;
    9409 pg_visibility_map_summary(REGCLASS) RECORD "sv" {
        all_visible INT8 all_frozen INT8
    } = SESSION_SET;
    9410 pg_buffercache_summary() RECORD "nv" {
        buffers_used INT4 buffers_unused INT4 buffers_dirty INT4 buffers_pinned INT4
    } = SESSION_SET;
}
