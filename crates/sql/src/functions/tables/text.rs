//! Text basics.

use super::builtins;
use crate::functions::text;

builtins! { TEXT
    401 text(BPCHAR) TEXT "si" = scalar(text::bpchar_text);
    406 text(NAME) TEXT "si" = scalar(text::same);
    407 name(TEXT) NAME "si" = scalar(text::text_name);
    408 bpchar(NAME) BPCHAR "si" = scalar(text::same);
    409 name(BPCHAR) NAME "si" = scalar(text::bpchar_name);
    668 bpchar(BPCHAR INT4 BOOL) BPCHAR "si" = scalar(text::bpchar_cast);
    669 varchar(VARCHAR INT4 BOOL) VARCHAR "si" = scalar(text::varchar_cast);
    720 octet_length(BYTEA) INT4 "si" = scalar(text::byte_length);
    860 bpchar(CHAR) BPCHAR "si" = scalar(text::char_text);
    944 char(TEXT) CHAR "si" = scalar(text::text_char);
    946 text(CHAR) TEXT "si" = scalar(text::char_text);
    1257 textlen(TEXT) INT4 "si" = scalar(text::text_length);
    1258 textcat(TEXT TEXT) TEXT "si" = scalar(text::textcat);
    1317 length(TEXT) INT4 "si" = scalar(text::text_length);
    1318 length(BPCHAR) INT4 "si" = scalar(text::bpchar_length);
    1367 character_length(BPCHAR) INT4 "si" = scalar(text::bpchar_length);
    1369 character_length(TEXT) INT4 "si" = scalar(text::text_length);
    1372 char_length(BPCHAR) INT4 "si" = scalar(text::bpchar_length);
    1374 octet_length(TEXT) INT4 "si" = scalar(text::octet_length);
    1375 octet_length(BPCHAR) INT4 "si" = scalar(text::octet_length);
    1381 char_length(TEXT) INT4 "si" = scalar(text::text_length);
    1400 name(VARCHAR) NAME "si" = scalar(text::text_name);
    1401 varchar(NAME) VARCHAR "si" = scalar(text::same);
    1810 bit_length(BYTEA) INT4 "si" = scalar(text::byte_bit_length);
    1811 bit_length(TEXT) INT4 "si" = scalar(text::bit_length);
    2003 textanycat(TEXT ANYNONARRAY) TEXT "ss" = typed(text::text_any_cat);
    2004 anytextcat(ANYNONARRAY TEXT) TEXT "ss" = typed(text::text_any_cat);
    2010 length(BYTEA) INT4 "si" = scalar(text::byte_length);
    2011 byteacat(BYTEA BYTEA) BYTEA "si" = scalar(text::bytecat);
    2971 text(BOOL) TEXT "si" = scalar(text::bool_text);
}
