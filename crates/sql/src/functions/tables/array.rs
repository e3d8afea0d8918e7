//! Array functions and operators.

use super::builtins;
use crate::functions::array;

builtins! { ARRAY
    376 string_to_array(TEXT TEXT TEXT) TEXT_ARRAY "ni" = scalar(array::from_string);
    378 array_append(ANYCOMPATIBLEARRAY ANYCOMPATIBLE) ANYCOMPATIBLEARRAY "ni"
        = typed(array::append);
    379 array_prepend(ANYCOMPATIBLE ANYCOMPATIBLEARRAY) ANYCOMPATIBLEARRAY "ni"
        = typed(array::prepend);
    383 array_cat(ANYCOMPATIBLEARRAY ANYCOMPATIBLEARRAY) ANYCOMPATIBLEARRAY "ni"
        = scalar(array::cat);
    384 array_to_string(ANYARRAY TEXT TEXT) TEXT "ns" = scalar(array::to_string);
    394 string_to_array(TEXT TEXT) TEXT_ARRAY "ni" = scalar(array::from_string);
    395 array_to_string(ANYARRAY TEXT) TEXT "ss" = scalar(array::to_string);
    747 array_dims(ANYARRAY) TEXT "si" = scalar(array::dims);
    748 array_ndims(ANYARRAY) INT4 "si" = scalar(array::ndims);
    1191 generate_subscripts(ANYARRAY INT4 BOOL) INT4 "si" = set(array::subscripts);
    1192 generate_subscripts(ANYARRAY INT4) INT4 "si" = set(array::subscripts);
    1193 array_fill(ANYELEMENT INT4_ARRAY) ANYARRAY "ni" = typed(array::fill);
    1286 array_fill(ANYELEMENT INT4_ARRAY INT4_ARRAY) ANYARRAY "ni" = typed(array::fill);
    2091 array_lower(ANYARRAY INT4) INT4 "si" = scalar(array::lower);
    2092 array_upper(ANYARRAY INT4) INT4 "si" = scalar(array::upper);
    2176 array_length(ANYARRAY INT4) INT4 "si" = scalar(array::length);
    2289 pg_options_to_table(TEXT_ARRAY) RECORD "ss" {
        option_name TEXT option_value TEXT
    } = set(array::options_to_table);
    2331 unnest(ANYARRAY) ANYELEMENT "si" = set(array::unnest);
    2747 arrayoverlap(ANYARRAY ANYARRAY) BOOL "si" = scalar(array::overlaps);
    2748 arraycontains(ANYARRAY ANYARRAY) BOOL "si" = scalar(array::contains);
    2749 arraycontained(ANYARRAY ANYARRAY) BOOL "si" = scalar(array::contained);
    3167 array_remove(ANYCOMPATIBLEARRAY ANYCOMPATIBLE) ANYCOMPATIBLEARRAY "ni"
        = scalar(array::remove);
    3168 array_replace(ANYCOMPATIBLEARRAY ANYCOMPATIBLE ANYCOMPATIBLE) ANYCOMPATIBLEARRAY "ni"
        = scalar(array::replace);
    3179 cardinality(ANYARRAY) INT4 "si" = scalar(array::cardinality);
    3277 array_position(ANYCOMPATIBLEARRAY ANYCOMPATIBLE) INT4 "ni" = scalar(array::position);
    3278 array_position(ANYCOMPATIBLEARRAY ANYCOMPATIBLE INT4) INT4 "ni" = scalar(array::position);
    3279 array_positions(ANYCOMPATIBLEARRAY ANYCOMPATIBLE) INT4_ARRAY "ni"
        = scalar(array::positions);
    6160 string_to_table(TEXT TEXT) TEXT "ni" = set(array::string_to_table);
    6161 string_to_table(TEXT TEXT TEXT) TEXT "ni" = set(array::string_to_table);
    6172 trim_array(ANYARRAY INT4) ANYARRAY "si" = scalar(array::trim);
}
