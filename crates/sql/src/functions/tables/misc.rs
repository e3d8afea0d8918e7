//! Series, types, encodings and what belongs to no other family.

use super::builtins;
use crate::functions::misc;

builtins! { MISC
    438 num_nulls(ANY) INT4 "niV" = scalar(misc::num_nulls);
    440 num_nonnulls(ANY) INT4 "niV" = scalar(misc::num_nonnulls);
    810 pg_client_encoding() NAME "ss" = scalar(misc::database_encoding);
    938 generate_series(TIMESTAMP TIMESTAMP INTERVAL) TIMESTAMP "si" = set(misc::series_timestamp);
    939 generate_series(TIMESTAMPTZ TIMESTAMPTZ INTERVAL) TIMESTAMPTZ "ss"
        = set(misc::series_timestamptz);
    1039 getdatabaseencoding() NAME "ss" = scalar(misc::database_encoding);
    1066 generate_series(INT4 INT4 INT4) INT4 "si" = set(misc::series_int4);
    1067 generate_series(INT4 INT4) INT4 "si" = set(misc::series_int4);
    1068 generate_series(INT8 INT8 INT8) INT8 "si" = set(misc::series_int8);
    1069 generate_series(INT8 INT8) INT8 "si" = set(misc::series_int8);
    1081 format_type(OID INT4) TEXT "ns" = scalar(misc::format_type);
    1264 pg_char_to_encoding(NAME) INT4 "ss" = scalar(misc::char_to_encoding);
    1269 pg_column_size(ANY) INT4 "ss" = typed(misc::column_size);
    1349 oidvectortypes(OIDVECTOR) TEXT "ss" = scalar(misc::vector_types);
    1597 pg_encoding_to_char(INT4) NAME "ss" = scalar(misc::encoding_to_char);
    1619 pg_typeof(ANY) REGTYPE "ns" = typed(misc::type_of);
    2319 pg_encoding_max_length(INT4) INT4 "si" = scalar(misc::encoding_max_length);
    2599 pg_timezone_abbrevs() RECORD "ss" {
        abbrev TEXT utc_offset INTERVAL is_dst BOOL
    } = set(misc::timezone_abbrevs);
    2856 pg_timezone_names() RECORD "ss" {
        name TEXT abbrev TEXT utc_offset INTERVAL is_dst BOOL
    } = set(misc::timezone_names);
    3259 generate_series(NUMERIC NUMERIC NUMERIC) NUMERIC "si" = set(misc::series_numeric);
    3260 generate_series(NUMERIC NUMERIC) NUMERIC "si" = set(misc::series_numeric);
}
