//! Dates, times, timestamps, intervals.

use super::builtins;
use crate::functions::{compare, datetime, datetime_parts};

builtins! { DATETIME
    274 timeofday() TEXT "sv" = scalar(datetime::timeofday);
    1026 timezone(INTERVAL TIMESTAMPTZ) TIMESTAMP "si" = scalar(datetime::offset_of_timestamptz);
    1086 date_eq(DATE DATE) BOOL "si" = scalar(compare::eq);
    1087 date_lt(DATE DATE) BOOL "si" = scalar(compare::lt);
    1088 date_le(DATE DATE) BOOL "si" = scalar(compare::le);
    1089 date_gt(DATE DATE) BOOL "si" = scalar(compare::gt);
    1090 date_ge(DATE DATE) BOOL "si" = scalar(compare::ge);
    1091 date_ne(DATE DATE) BOOL "si" = scalar(compare::ne);
    1092 date_cmp(DATE DATE) INT4 "si" = scalar(compare::cmp);
    1102 time_lt(TIME TIME) BOOL "si" = scalar(compare::lt);
    1103 time_le(TIME TIME) BOOL "si" = scalar(compare::le);
    1104 time_gt(TIME TIME) BOOL "si" = scalar(compare::gt);
    1105 time_ge(TIME TIME) BOOL "si" = scalar(compare::ge);
    1106 time_ne(TIME TIME) BOOL "si" = scalar(compare::ne);
    1107 time_cmp(TIME TIME) INT4 "si" = scalar(compare::cmp);
    1138 date_larger(DATE DATE) DATE "si" = scalar(compare::larger);
    1139 date_smaller(DATE DATE) DATE "si" = scalar(compare::smaller);
    1140 date_mi(DATE DATE) INT4 "si" = scalar(datetime::date_mi);
    1141 date_pli(DATE INT4) DATE "si" = scalar(datetime::date_pli);
    1142 date_mii(DATE INT4) DATE "si" = scalar(datetime::date_mii);
    1145 time_eq(TIME TIME) BOOL "si" = scalar(compare::eq);
    1152 timestamptz_eq(TIMESTAMPTZ TIMESTAMPTZ) BOOL "si" = scalar(compare::eq);
    1153 timestamptz_ne(TIMESTAMPTZ TIMESTAMPTZ) BOOL "si" = scalar(compare::ne);
    1154 timestamptz_lt(TIMESTAMPTZ TIMESTAMPTZ) BOOL "si" = scalar(compare::lt);
    1155 timestamptz_le(TIMESTAMPTZ TIMESTAMPTZ) BOOL "si" = scalar(compare::le);
    1156 timestamptz_ge(TIMESTAMPTZ TIMESTAMPTZ) BOOL "si" = scalar(compare::ge);
    1157 timestamptz_gt(TIMESTAMPTZ TIMESTAMPTZ) BOOL "si" = scalar(compare::gt);
    1158 to_timestamp(FLOAT8) TIMESTAMPTZ "si" = scalar(datetime_parts::from_epoch);
    1159 timezone(TEXT TIMESTAMPTZ) TIMESTAMP "si" = scalar(datetime::zone_of_timestamptz);
    1162 interval_eq(INTERVAL INTERVAL) BOOL "si" = scalar(compare::eq);
    1163 interval_ne(INTERVAL INTERVAL) BOOL "si" = scalar(compare::ne);
    1164 interval_lt(INTERVAL INTERVAL) BOOL "si" = scalar(compare::lt);
    1165 interval_le(INTERVAL INTERVAL) BOOL "si" = scalar(compare::le);
    1166 interval_ge(INTERVAL INTERVAL) BOOL "si" = scalar(compare::ge);
    1167 interval_gt(INTERVAL INTERVAL) BOOL "si" = scalar(compare::gt);
    1168 interval_um(INTERVAL) INTERVAL "si" = scalar(datetime::interval_um);
    1169 interval_pl(INTERVAL INTERVAL) INTERVAL "si" = scalar(datetime::interval_pl);
    1170 interval_mi(INTERVAL INTERVAL) INTERVAL "si" = scalar(datetime::interval_mi);
    1171 date_part(TEXT TIMESTAMPTZ) FLOAT8 "ss" = scalar(datetime_parts::part_timestamptz);
    1172 date_part(TEXT INTERVAL) FLOAT8 "si" = scalar(datetime_parts::part_interval);
    1174 timestamptz(DATE) TIMESTAMPTZ "ss" = scalar(datetime::date_timestamptz);
    1175 justify_hours(INTERVAL) INTERVAL "si" = scalar(datetime::justify_hours);
    1176 timestamptz(DATE TIME) TIMESTAMPTZ "ss" = scalar(datetime::date_time_timestamptz);
    1178 date(TIMESTAMPTZ) DATE "ss" = scalar(datetime::timestamptz_date);
    1188 timestamptz_mi(TIMESTAMPTZ TIMESTAMPTZ) INTERVAL "si" = scalar(datetime::timestamp_mi);
    1189 timestamptz_pl_interval(TIMESTAMPTZ INTERVAL) TIMESTAMPTZ "ss"
        = scalar(datetime::timestamptz_pl_interval);
    1190 timestamptz_mi_interval(TIMESTAMPTZ INTERVAL) TIMESTAMPTZ "ss"
        = scalar(datetime::timestamptz_mi_interval);
    1195 timestamptz_smaller(TIMESTAMPTZ TIMESTAMPTZ) TIMESTAMPTZ "si" = scalar(compare::smaller);
    1196 timestamptz_larger(TIMESTAMPTZ TIMESTAMPTZ) TIMESTAMPTZ "si" = scalar(compare::larger);
    1197 interval_smaller(INTERVAL INTERVAL) INTERVAL "si" = scalar(compare::smaller);
    1198 interval_larger(INTERVAL INTERVAL) INTERVAL "si" = scalar(compare::larger);
    1199 age(TIMESTAMPTZ TIMESTAMPTZ) INTERVAL "si" = scalar(datetime::age_zoned);
    1200 interval(INTERVAL INT4) INTERVAL "si" = scalar(datetime::interval_scale);
    1217 date_trunc(TEXT TIMESTAMPTZ) TIMESTAMPTZ "ss" = scalar(datetime_parts::trunc_timestamptz);
    1218 date_trunc(TEXT INTERVAL) INTERVAL "si" = scalar(datetime_parts::trunc_interval);
    1271 overlaps(TIMETZ TIMETZ TIMETZ TIMETZ) BOOL "ni" = scalar(datetime_parts::overlaps);
    1272 datetime_pl(DATE TIME) TIMESTAMP "si" = scalar(datetime::datetime_pl);
    1273 date_part(TEXT TIMETZ) FLOAT8 "si" = scalar(datetime_parts::part_timetz);
    1284 date_trunc(TEXT TIMESTAMPTZ TEXT) TIMESTAMPTZ "ss"
        = scalar(datetime_parts::trunc_timestamptz_in);
    1295 justify_days(INTERVAL) INTERVAL "si" = scalar(datetime::justify_days);
    1296 timedate_pl(TIME DATE) TIMESTAMP "si" = scalar(datetime::timedate_pl);
    1297 datetimetz_pl(DATE TIMETZ) TIMESTAMPTZ "si" = scalar(datetime::datetimetz_pl);
    1298 timetzdate_pl(TIMETZ DATE) TIMESTAMPTZ "si" = scalar(datetime::timetzdate_pl);
    1299 now() TIMESTAMPTZ "ss" = scalar(datetime::now);
    1304 overlaps(TIMESTAMPTZ TIMESTAMPTZ TIMESTAMPTZ TIMESTAMPTZ) BOOL "ni"
        = scalar(datetime_parts::overlaps_zoned);
    1305 overlaps(TIMESTAMPTZ INTERVAL TIMESTAMPTZ INTERVAL) BOOL "ns"
        = scalar(datetime_parts::overlaps_zoned);
    1306 overlaps(TIMESTAMPTZ TIMESTAMPTZ TIMESTAMPTZ INTERVAL) BOOL "ns"
        = scalar(datetime_parts::overlaps_zoned);
    1307 overlaps(TIMESTAMPTZ INTERVAL TIMESTAMPTZ TIMESTAMPTZ) BOOL "ns"
        = scalar(datetime_parts::overlaps_zoned);
    1308 overlaps(TIME TIME TIME TIME) BOOL "ni" = scalar(datetime_parts::overlaps);
    1309 overlaps(TIME INTERVAL TIME INTERVAL) BOOL "ni" = scalar(datetime_parts::overlaps);
    1310 overlaps(TIME TIME TIME INTERVAL) BOOL "ni" = scalar(datetime_parts::overlaps);
    1311 overlaps(TIME INTERVAL TIME TIME) BOOL "ni" = scalar(datetime_parts::overlaps);
    1314 timestamptz_cmp(TIMESTAMPTZ TIMESTAMPTZ) INT4 "si" = scalar(compare::cmp);
    1315 interval_cmp(INTERVAL INTERVAL) INT4 "si" = scalar(compare::cmp);
    1316 time(TIMESTAMP) TIME "si" = scalar(datetime::timestamp_time);
    1326 interval_div(INTERVAL FLOAT8) INTERVAL "si" = scalar(datetime::interval_div);
    1352 timetz_eq(TIMETZ TIMETZ) BOOL "si" = scalar(compare::eq);
    1353 timetz_ne(TIMETZ TIMETZ) BOOL "si" = scalar(compare::ne);
    1354 timetz_lt(TIMETZ TIMETZ) BOOL "si" = scalar(compare::lt);
    1355 timetz_le(TIMETZ TIMETZ) BOOL "si" = scalar(compare::le);
    1356 timetz_ge(TIMETZ TIMETZ) BOOL "si" = scalar(compare::ge);
    1357 timetz_gt(TIMETZ TIMETZ) BOOL "si" = scalar(compare::gt);
    1358 timetz_cmp(TIMETZ TIMETZ) INT4 "si" = scalar(compare::cmp);
    1359 timestamptz(DATE TIMETZ) TIMESTAMPTZ "si" = scalar(datetime::datetimetz_pl);
    1370 interval(TIME) INTERVAL "si" = scalar(datetime::time_interval);
    1373 isfinite(DATE) BOOL "si" = scalar(datetime::isfinite_date);
    1377 time_larger(TIME TIME) TIME "si" = scalar(compare::larger);
    1378 time_smaller(TIME TIME) TIME "si" = scalar(compare::smaller);
    1379 timetz_larger(TIMETZ TIMETZ) TIMETZ "si" = scalar(compare::larger);
    1380 timetz_smaller(TIMETZ TIMETZ) TIMETZ "si" = scalar(compare::smaller);
    1384 date_part(TEXT DATE) FLOAT8 "si" = scalar(datetime_parts::part_date);
    1385 date_part(TEXT TIME) FLOAT8 "si" = scalar(datetime_parts::part_time);
    1386 age(TIMESTAMPTZ) INTERVAL "ss" = scalar(datetime::age_zoned_today);
    1388 timetz(TIMESTAMPTZ) TIMETZ "ss" = scalar(datetime::timestamptz_timetz);
    1389 isfinite(TIMESTAMPTZ) BOOL "si" = scalar(datetime::isfinite_timestamp);
    1390 isfinite(INTERVAL) BOOL "si" = scalar(datetime::isfinite_interval);
    1419 time(INTERVAL) TIME "si" = scalar(datetime::interval_time);
    1618 interval_mul(INTERVAL FLOAT8) INTERVAL "si" = scalar(datetime::interval_mul);
    1624 mul_d_interval(FLOAT8 INTERVAL) INTERVAL "si" = scalar(datetime::mul_d_interval);
    1690 time_mi_time(TIME TIME) INTERVAL "si" = scalar(datetime::time_mi_time);
    1747 time_pl_interval(TIME INTERVAL) TIME "si" = scalar(datetime::time_pl_interval);
    1748 time_mi_interval(TIME INTERVAL) TIME "si" = scalar(datetime::time_mi_interval);
    1749 timetz_pl_interval(TIMETZ INTERVAL) TIMETZ "si" = scalar(datetime::timetz_pl_interval);
    1750 timetz_mi_interval(TIMETZ INTERVAL) TIMETZ "si" = scalar(datetime::timetz_mi_interval);
    1768 to_char(INTERVAL TEXT) TEXT "ss" = scalar(datetime_parts::to_char_interval);
    1770 to_char(TIMESTAMPTZ TEXT) TEXT "ss" = scalar(datetime_parts::to_char_timestamptz);
    1778 to_timestamp(TEXT TEXT) TIMESTAMPTZ "ss" = scalar(datetime_parts::to_timestamp);
    1780 to_date(TEXT TEXT) DATE "ss" = scalar(datetime_parts::to_date);
    1848 interval_pl_time(INTERVAL TIME) TIME "si" = scalar(datetime::interval_pl_time);
    1961 timestamp(TIMESTAMP INT4) TIMESTAMP "si" = scalar(datetime::timestamp_scale);
    1967 timestamptz(TIMESTAMPTZ INT4) TIMESTAMPTZ "si" = scalar(datetime::timestamp_scale);
    1968 time(TIME INT4) TIME "si" = scalar(datetime::time_scale);
    1969 timetz(TIMETZ INT4) TIMETZ "si" = scalar(datetime::timetz_scale);
    2019 time(TIMESTAMPTZ) TIME "ss" = scalar(datetime::timestamptz_time);
    2020 date_trunc(TEXT TIMESTAMP) TIMESTAMP "si" = scalar(datetime_parts::trunc_timestamp);
    2021 date_part(TEXT TIMESTAMP) FLOAT8 "si" = scalar(datetime_parts::part_timestamp);
    2024 timestamp(DATE) TIMESTAMP "si" = scalar(datetime::date_timestamp);
    2025 timestamp(DATE TIME) TIMESTAMP "si" = scalar(datetime::datetime_pl);
    2027 timestamp(TIMESTAMPTZ) TIMESTAMP "ss" = scalar(datetime::timestamptz_timestamp);
    2028 timestamptz(TIMESTAMP) TIMESTAMPTZ "ss" = scalar(datetime::timestamp_timestamptz);
    2029 date(TIMESTAMP) DATE "si" = scalar(datetime::timestamp_date);
    2031 timestamp_mi(TIMESTAMP TIMESTAMP) INTERVAL "si" = scalar(datetime::timestamp_mi);
    2032 timestamp_pl_interval(TIMESTAMP INTERVAL) TIMESTAMP "si"
        = scalar(datetime::timestamp_pl_interval);
    2033 timestamp_mi_interval(TIMESTAMP INTERVAL) TIMESTAMP "si"
        = scalar(datetime::timestamp_mi_interval);
    2035 timestamp_smaller(TIMESTAMP TIMESTAMP) TIMESTAMP "si" = scalar(compare::smaller);
    2036 timestamp_larger(TIMESTAMP TIMESTAMP) TIMESTAMP "si" = scalar(compare::larger);
    2037 timezone(TEXT TIMETZ) TIMETZ "ss" = scalar(datetime::zone_of_timetz);
    2038 timezone(INTERVAL TIMETZ) TIMETZ "si" = scalar(datetime::offset_of_timetz);
    2041 overlaps(TIMESTAMP TIMESTAMP TIMESTAMP TIMESTAMP) BOOL "ni"
        = scalar(datetime_parts::overlaps);
    2042 overlaps(TIMESTAMP INTERVAL TIMESTAMP INTERVAL) BOOL "ni"
        = scalar(datetime_parts::overlaps);
    2043 overlaps(TIMESTAMP TIMESTAMP TIMESTAMP INTERVAL) BOOL "ni"
        = scalar(datetime_parts::overlaps);
    2044 overlaps(TIMESTAMP INTERVAL TIMESTAMP TIMESTAMP) BOOL "ni"
        = scalar(datetime_parts::overlaps);
    2045 timestamp_cmp(TIMESTAMP TIMESTAMP) INT4 "si" = scalar(compare::cmp);
    2046 time(TIMETZ) TIME "si" = scalar(datetime::timetz_time);
    2047 timetz(TIME) TIMETZ "ss" = scalar(datetime::time_timetz);
    2048 isfinite(TIMESTAMP) BOOL "si" = scalar(datetime::isfinite_timestamp);
    2049 to_char(TIMESTAMP TEXT) TEXT "ss" = scalar(datetime_parts::to_char_timestamp);
    2052 timestamp_eq(TIMESTAMP TIMESTAMP) BOOL "si" = scalar(compare::eq);
    2053 timestamp_ne(TIMESTAMP TIMESTAMP) BOOL "si" = scalar(compare::ne);
    2054 timestamp_lt(TIMESTAMP TIMESTAMP) BOOL "si" = scalar(compare::lt);
    2055 timestamp_le(TIMESTAMP TIMESTAMP) BOOL "si" = scalar(compare::le);
    2056 timestamp_ge(TIMESTAMP TIMESTAMP) BOOL "si" = scalar(compare::ge);
    2057 timestamp_gt(TIMESTAMP TIMESTAMP) BOOL "si" = scalar(compare::gt);
    2058 age(TIMESTAMP TIMESTAMP) INTERVAL "si" = scalar(datetime::age);
    2059 age(TIMESTAMP) INTERVAL "ss" = scalar(datetime::age_today);
    2069 timezone(TEXT TIMESTAMP) TIMESTAMPTZ "si" = scalar(datetime::zone_of_timestamp);
    2070 timezone(INTERVAL TIMESTAMP) TIMESTAMPTZ "si" = scalar(datetime::offset_of_timestamp);
    2071 date_pl_interval(DATE INTERVAL) TIMESTAMP "si" = scalar(datetime::date_pl_interval);
    2072 date_mi_interval(DATE INTERVAL) TIMESTAMP "si" = scalar(datetime::date_mi_interval);
    2338 date_lt_timestamp(DATE TIMESTAMP) BOOL "si" = scalar(datetime::date_lt_timestamp);
    2339 date_le_timestamp(DATE TIMESTAMP) BOOL "si" = scalar(datetime::date_le_timestamp);
    2340 date_eq_timestamp(DATE TIMESTAMP) BOOL "si" = scalar(datetime::date_eq_timestamp);
    2341 date_gt_timestamp(DATE TIMESTAMP) BOOL "si" = scalar(datetime::date_gt_timestamp);
    2342 date_ge_timestamp(DATE TIMESTAMP) BOOL "si" = scalar(datetime::date_ge_timestamp);
    2343 date_ne_timestamp(DATE TIMESTAMP) BOOL "si" = scalar(datetime::date_ne_timestamp);
    2344 date_cmp_timestamp(DATE TIMESTAMP) INT4 "si" = scalar(datetime::date_cmp_timestamp);
    2351 date_lt_timestamptz(DATE TIMESTAMPTZ) BOOL "ss" = scalar(datetime::date_lt_timestamptz);
    2352 date_le_timestamptz(DATE TIMESTAMPTZ) BOOL "ss" = scalar(datetime::date_le_timestamptz);
    2353 date_eq_timestamptz(DATE TIMESTAMPTZ) BOOL "ss" = scalar(datetime::date_eq_timestamptz);
    2354 date_gt_timestamptz(DATE TIMESTAMPTZ) BOOL "ss" = scalar(datetime::date_gt_timestamptz);
    2355 date_ge_timestamptz(DATE TIMESTAMPTZ) BOOL "ss" = scalar(datetime::date_ge_timestamptz);
    2356 date_ne_timestamptz(DATE TIMESTAMPTZ) BOOL "ss" = scalar(datetime::date_ne_timestamptz);
    2357 date_cmp_timestamptz(DATE TIMESTAMPTZ) INT4 "ss" = scalar(datetime::date_cmp_timestamptz);
    2364 timestamp_lt_date(TIMESTAMP DATE) BOOL "si" = scalar(datetime::timestamp_lt_date);
    2365 timestamp_le_date(TIMESTAMP DATE) BOOL "si" = scalar(datetime::timestamp_le_date);
    2366 timestamp_eq_date(TIMESTAMP DATE) BOOL "si" = scalar(datetime::timestamp_eq_date);
    2367 timestamp_gt_date(TIMESTAMP DATE) BOOL "si" = scalar(datetime::timestamp_gt_date);
    2368 timestamp_ge_date(TIMESTAMP DATE) BOOL "si" = scalar(datetime::timestamp_ge_date);
    2369 timestamp_ne_date(TIMESTAMP DATE) BOOL "si" = scalar(datetime::timestamp_ne_date);
    2370 timestamp_cmp_date(TIMESTAMP DATE) INT4 "si" = scalar(datetime::timestamp_cmp_date);
    2377 timestamptz_lt_date(TIMESTAMPTZ DATE) BOOL "ss" = scalar(datetime::timestamptz_lt_date);
    2378 timestamptz_le_date(TIMESTAMPTZ DATE) BOOL "ss" = scalar(datetime::timestamptz_le_date);
    2379 timestamptz_eq_date(TIMESTAMPTZ DATE) BOOL "ss" = scalar(datetime::timestamptz_eq_date);
    2380 timestamptz_gt_date(TIMESTAMPTZ DATE) BOOL "ss" = scalar(datetime::timestamptz_gt_date);
    2381 timestamptz_ge_date(TIMESTAMPTZ DATE) BOOL "ss" = scalar(datetime::timestamptz_ge_date);
    2382 timestamptz_ne_date(TIMESTAMPTZ DATE) BOOL "ss" = scalar(datetime::timestamptz_ne_date);
    2383 timestamptz_cmp_date(TIMESTAMPTZ DATE) INT4 "ss" = scalar(datetime::timestamptz_cmp_date);
    2520 timestamp_lt_timestamptz(TIMESTAMP TIMESTAMPTZ) BOOL "ss"
        = scalar(datetime::timestamp_lt_timestamptz);
    2521 timestamp_le_timestamptz(TIMESTAMP TIMESTAMPTZ) BOOL "ss"
        = scalar(datetime::timestamp_le_timestamptz);
    2522 timestamp_eq_timestamptz(TIMESTAMP TIMESTAMPTZ) BOOL "ss"
        = scalar(datetime::timestamp_eq_timestamptz);
    2523 timestamp_gt_timestamptz(TIMESTAMP TIMESTAMPTZ) BOOL "ss"
        = scalar(datetime::timestamp_gt_timestamptz);
    2524 timestamp_ge_timestamptz(TIMESTAMP TIMESTAMPTZ) BOOL "ss"
        = scalar(datetime::timestamp_ge_timestamptz);
    2525 timestamp_ne_timestamptz(TIMESTAMP TIMESTAMPTZ) BOOL "ss"
        = scalar(datetime::timestamp_ne_timestamptz);
    2526 timestamp_cmp_timestamptz(TIMESTAMP TIMESTAMPTZ) INT4 "ss"
        = scalar(datetime::timestamp_cmp_timestamptz);
    2527 timestamptz_lt_timestamp(TIMESTAMPTZ TIMESTAMP) BOOL "ss"
        = scalar(datetime::timestamptz_lt_timestamp);
    2528 timestamptz_le_timestamp(TIMESTAMPTZ TIMESTAMP) BOOL "ss"
        = scalar(datetime::timestamptz_le_timestamp);
    2529 timestamptz_eq_timestamp(TIMESTAMPTZ TIMESTAMP) BOOL "ss"
        = scalar(datetime::timestamptz_eq_timestamp);
    2530 timestamptz_gt_timestamp(TIMESTAMPTZ TIMESTAMP) BOOL "ss"
        = scalar(datetime::timestamptz_gt_timestamp);
    2531 timestamptz_ge_timestamp(TIMESTAMPTZ TIMESTAMP) BOOL "ss"
        = scalar(datetime::timestamptz_ge_timestamp);
    2532 timestamptz_ne_timestamp(TIMESTAMPTZ TIMESTAMP) BOOL "ss"
        = scalar(datetime::timestamptz_ne_timestamp);
    2533 timestamptz_cmp_timestamp(TIMESTAMPTZ TIMESTAMP) INT4 "ss"
        = scalar(datetime::timestamptz_cmp_timestamp);
    2546 interval_pl_date(INTERVAL DATE) TIMESTAMP "si" = scalar(datetime::interval_pl_date);
    2547 interval_pl_timetz(INTERVAL TIMETZ) TIMETZ "si" = scalar(datetime::interval_pl_timetz);
    2548 interval_pl_timestamp(INTERVAL TIMESTAMP) TIMESTAMP "si"
        = scalar(datetime::interval_pl_timestamp);
    2549 interval_pl_timestamptz(INTERVAL TIMESTAMPTZ) TIMESTAMPTZ "ss"
        = scalar(datetime::interval_pl_timestamptz);
    2550 integer_pl_date(INT4 DATE) DATE "si" = scalar(datetime::integer_pl_date);
    2647 transaction_timestamp() TIMESTAMPTZ "ss" = scalar(datetime::now);
    2648 statement_timestamp() TIMESTAMPTZ "ss" = scalar(datetime::statement_timestamp);
    2649 clock_timestamp() TIMESTAMPTZ "sv" = scalar(datetime::clock_timestamp);
    2711 justify_interval(INTERVAL) INTERVAL "si" = scalar(datetime::justify_interval);
    3461 make_timestamp(INT4 INT4 INT4 INT4 INT4 FLOAT8) TIMESTAMP "si"
        = scalar(datetime_parts::make_timestamp);
    3462 make_timestamptz(INT4 INT4 INT4 INT4 INT4 FLOAT8) TIMESTAMPTZ "ss"
        = scalar(datetime_parts::make_timestamptz);
    3463 make_timestamptz(INT4 INT4 INT4 INT4 INT4 FLOAT8 TEXT) TIMESTAMPTZ "ss"
        = scalar(datetime_parts::make_timestamptz);
    3464 make_interval(INT4 INT4 INT4 INT4 INT4 INT4 FLOAT8) INTERVAL "ni7"
        = scalar(datetime_parts::make_interval);
    3846 make_date(INT4 INT4 INT4) DATE "si" = scalar(datetime_parts::make_date);
    3847 make_time(INT4 INT4 FLOAT8) TIME "si" = scalar(datetime_parts::make_time);
    6177 date_bin(INTERVAL TIMESTAMP TIMESTAMP) TIMESTAMP "si" = scalar(datetime_parts::date_bin);
    6178 date_bin(INTERVAL TIMESTAMPTZ TIMESTAMPTZ) TIMESTAMPTZ "si"
        = scalar(datetime_parts::date_bin);
    6199 extract(TEXT DATE) NUMERIC "si" = scalar(datetime_parts::extract_date);
    6200 extract(TEXT TIME) NUMERIC "si" = scalar(datetime_parts::extract_time);
    6201 extract(TEXT TIMETZ) NUMERIC "si" = scalar(datetime_parts::extract_timetz);
    6202 extract(TEXT TIMESTAMP) NUMERIC "si" = scalar(datetime_parts::extract_timestamp);
    6203 extract(TEXT TIMESTAMPTZ) NUMERIC "ss" = scalar(datetime_parts::extract_timestamptz);
    6204 extract(TEXT INTERVAL) NUMERIC "si" = scalar(datetime_parts::extract_interval);
}
