//! The built-in types as `pg_type` describes them.
//!
//! One row a type; array types are derived from their elements (the name with a leading
//! underscore, variable length, the element's collation and modifier functions). Object
//! identifiers and attributes are PostgreSQL 15's, because drivers have them compiled in.
//!
//! ```
//! use inkling_sql::types::{self, Oid};
//! assert_eq!(types::info(Oid::INT4).unwrap().name, "int4");
//! assert_eq!(types::info_by_name("_int4").unwrap().element, Oid::INT4);
//! assert_eq!(types::format_type(Oid::VARCHAR, 14), "character varying(10)");
//! ```

use super::Oid;
use hashbrown::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// A type as `pg_type` shows it. Function names are empty where there is no such function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeInfo {
    pub oid: Oid,
    pub name: &'static str,
    /// Bytes, or -1 for a varlena, -2 for a C string.
    pub len: i16,
    pub by_value: bool,
    pub align: char,
    pub storage: char,
    pub category: char,
    pub preferred: bool,
    /// `b`ase or `p`seudo-type.
    pub kind: char,
    pub array: Oid,
    /// What subscripting yields; [`Oid::INVALID`] for what cannot be subscripted.
    pub element: Oid,
    pub delimiter: char,
    pub input: &'static str,
    pub output: &'static str,
    pub receive: &'static str,
    pub send: &'static str,
    pub typmod_in: &'static str,
    pub typmod_out: &'static str,
    pub subscript: &'static str,
    pub collation: Oid,
    /// As `format_type` writes it without a modifier.
    pub display: &'static str,
}

impl TypeInfo {
    pub fn collatable(&self) -> bool {
        self.collation.is_valid()
    }

    /// A true array type: not int2vector, not oidvector.
    pub fn is_array(&self) -> bool {
        self.len == -1 && self.element.is_valid() && self.input == "array_in"
    }

    pub fn is_pseudo(&self) -> bool {
        self.kind == 'p'
    }
}

const fn has(flags: &str, wanted: u8) -> bool {
    let bytes = flags.as_bytes();
    let mut i = 4;
    while i < bytes.len() {
        if bytes[i] == wanted {
            return true;
        }
        i += 1;
    }
    false
}

const fn subscript_handler(oid: u32) -> &'static str {
    match Oid(oid) {
        Oid::NAME => "raw_array_subscript_handler",
        Oid::INT2VECTOR | Oid::OIDVECTOR => "array_subscript_handler",
        _ => "",
    }
}

/// Rows: oid, name, length, "align storage category kind" with flags (`+` preferred, `v` by
/// value, `r` binary functions, `m` modifier functions), array type, display name, prefix of the
/// I/O functions' names, element type, collation.
macro_rules! base_types {
    ($($oid:literal $name:literal $len:literal $flags:literal $array:literal $display:literal
       $io:literal $element:literal $collation:literal;)*) => {
        static BASE: &[TypeInfo] = &[$(TypeInfo {
            oid: Oid($oid),
            name: $name,
            len: $len,
            by_value: has($flags, b'v'),
            align: $flags.as_bytes()[0] as char,
            storage: $flags.as_bytes()[1] as char,
            category: $flags.as_bytes()[2] as char,
            preferred: has($flags, b'+'),
            kind: $flags.as_bytes()[3] as char,
            array: Oid($array),
            element: Oid($element),
            delimiter: ',',
            input: concat!($io, "in"),
            output: concat!($io, "out"),
            receive: if has($flags, b'r') { concat!($io, "recv") } else { "" },
            send: if has($flags, b'r') { concat!($io, "send") } else { "" },
            typmod_in: if has($flags, b'm') { concat!($name, "typmodin") } else { "" },
            typmod_out: if has($flags, b'm') { concat!($name, "typmodout") } else { "" },
            subscript: subscript_handler($oid),
            collation: Oid($collation),
            display: $display,
        }),*];
        static ARRAYS: &[(&str, &str)] = &[$((concat!("_", $name), concat!($display, "[]"))),*];
    };
}

base_types! {
    16 "bool" 1 "cpBb+vr" 1000 "boolean" "bool" 0 0;
    17 "bytea" -1 "ixUbr" 1001 "bytea" "bytea" 0 0;
    18 "char" 1 "cpZbvr" 1002 "\"char\"" "char" 0 0;
    19 "name" 64 "cpSbr" 1003 "name" "name" 18 950;
    20 "int8" 8 "dpNbvr" 1016 "bigint" "int8" 0 0;
    21 "int2" 2 "spNbvr" 1005 "smallint" "int2" 0 0;
    22 "int2vector" -1 "ipAbr" 1006 "int2vector" "int2vector" 21 0;
    23 "int4" 4 "ipNbvr" 1007 "integer" "int4" 0 0;
    24 "regproc" 4 "ipNbvr" 1008 "regproc" "regproc" 0 0;
    25 "text" -1 "ixSb+r" 1009 "text" "text" 0 100;
    26 "oid" 4 "ipNb+vr" 1028 "oid" "oid" 0 0;
    27 "tid" 6 "spUbr" 1010 "tid" "tid" 0 0;
    28 "xid" 4 "ipUbvr" 1011 "xid" "xid" 0 0;
    29 "cid" 4 "ipUbvr" 1012 "cid" "cid" 0 0;
    30 "oidvector" -1 "ipAbr" 1013 "oidvector" "oidvector" 26 0;
    114 "json" -1 "ixUbr" 199 "json" "json_" 0 0;
    194 "pg_node_tree" -1 "ixZbr" 0 "pg_node_tree" "pg_node_tree_" 0 100;
    700 "float4" 4 "ipNbvr" 1021 "real" "float4" 0 0;
    701 "float8" 8 "dpNb+vr" 1022 "double precision" "float8" 0 0;
    705 "unknown" -2 "cpXpr" 0 "unknown" "unknown" 0 0;
    1033 "aclitem" 12 "ipUb" 1034 "aclitem" "aclitem" 0 0;
    1042 "bpchar" -1 "ixSbrm" 1014 "character" "bpchar" 0 100;
    1043 "varchar" -1 "ixSbrm" 1015 "character varying" "varchar" 0 100;
    1082 "date" 4 "ipDbvr" 1182 "date" "date_" 0 0;
    1083 "time" 8 "dpDbvrm" 1183 "time without time zone" "time_" 0 0;
    1114 "timestamp" 8 "dpDbvrm" 1115 "timestamp without time zone" "timestamp_" 0 0;
    1184 "timestamptz" 8 "dpDb+vrm" 1185 "timestamp with time zone" "timestamptz_" 0 0;
    1186 "interval" 16 "dpTb+rm" 1187 "interval" "interval_" 0 0;
    1266 "timetz" 12 "dpDbrm" 1270 "time with time zone" "timetz_" 0 0;
    1700 "numeric" -1 "imNbrm" 1231 "numeric" "numeric_" 0 0;
    1790 "refcursor" -1 "ixUbr" 2201 "refcursor" "text" 0 0;
    2202 "regprocedure" 4 "ipNbvr" 2207 "regprocedure" "regprocedure" 0 0;
    2203 "regoper" 4 "ipNbvr" 2208 "regoper" "regoper" 0 0;
    2204 "regoperator" 4 "ipNbvr" 2209 "regoperator" "regoperator" 0 0;
    2205 "regclass" 4 "ipNbvr" 2210 "regclass" "regclass" 0 0;
    2206 "regtype" 4 "ipNbvr" 2211 "regtype" "regtype" 0 0;
    2249 "record" -1 "dxPpr" 2287 "record" "record_" 0 0;
    2275 "cstring" -2 "cpPpr" 1263 "cstring" "cstring_" 0 0;
    2276 "any" 4 "ipPpv" 0 "\"any\"" "any_" 0 0;
    2277 "anyarray" -1 "dxPpr" 0 "anyarray" "anyarray_" 0 0;
    2278 "void" 4 "ipPpvr" 0 "void" "void_" 0 0;
    2279 "trigger" 4 "ipPpv" 0 "trigger" "trigger_" 0 0;
    2280 "language_handler" 4 "ipPpv" 0 "language_handler" "language_handler_" 0 0;
    2281 "internal" 8 "dpPpv" 0 "internal" "internal_" 0 0;
    2283 "anyelement" 4 "ipPpv" 0 "anyelement" "anyelement_" 0 0;
    2776 "anynonarray" 4 "ipPpv" 0 "anynonarray" "anynonarray_" 0 0;
    2950 "uuid" 16 "cpUbr" 2951 "uuid" "uuid_" 0 0;
    3220 "pg_lsn" 8 "dpUbvr" 3221 "pg_lsn" "pg_lsn_" 0 0;
    3838 "event_trigger" 4 "ipPpv" 0 "event_trigger" "event_trigger_" 0 0;
    4089 "regnamespace" 4 "ipNbvr" 4090 "regnamespace" "regnamespace" 0 0;
    4096 "regrole" 4 "ipNbvr" 4097 "regrole" "regrole" 0 0;
    4191 "regcollation" 4 "ipNbvr" 4192 "regcollation" "regcollation" 0 0;
    5069 "xid8" 8 "dpUbvr" 271 "xid8" "xid8" 0 0;
    5077 "anycompatible" 4 "ipPpv" 0 "anycompatible" "anycompatible_" 0 0;
    5078 "anycompatiblearray" -1 "dxPpr" 0 "anycompatiblearray" "anycompatiblearray_" 0 0;
    5079 "anycompatiblenonarray" 4 "ipPpv" 0 "anycompatiblenonarray" "anycompatiblenonarray_" 0 0;
}

struct Registry {
    all: Vec<&'static TypeInfo>,
    by_oid: HashMap<Oid, &'static TypeInfo, foldhash::fast::FixedState>,
    by_name: HashMap<&'static str, &'static TypeInfo, foldhash::fast::FixedState>,
}

fn array_of(base: &'static TypeInfo, name: &'static str, display: &'static str) -> TypeInfo {
    TypeInfo {
        oid: base.array,
        name,
        len: -1,
        by_value: false,
        align: if base.align == 'd' { 'd' } else { 'i' },
        storage: 'x',
        category: if base.kind == 'p' { 'P' } else { 'A' },
        preferred: false,
        kind: base.kind,
        array: Oid::INVALID,
        element: base.oid,
        delimiter: ',',
        input: "array_in",
        output: "array_out",
        receive: "array_recv",
        send: "array_send",
        typmod_in: base.typmod_in,
        typmod_out: base.typmod_out,
        subscript: "array_subscript_handler",
        collation: base.collation,
        display,
    }
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let mut all: Vec<&'static TypeInfo> = BASE.iter().collect();
    for (base, &(name, display)) in BASE.iter().zip(ARRAYS) {
        if base.array.is_valid() {
            // Built once for the life of the process.
            all.push(Box::leak(Box::new(array_of(base, name, display))));
        }
    }
    all.sort_by_key(|t| t.oid);
    Registry {
        by_oid: all.iter().map(|t| (t.oid, *t)).collect(),
        by_name: all.iter().map(|t| (t.name, *t)).collect(),
        all,
    }
});

/// The type with this identifier.
pub fn info(oid: Oid) -> Option<&'static TypeInfo> {
    REGISTRY.by_oid.get(&oid).copied()
}

/// The type with this `pg_type.typname`.
pub fn info_by_name(name: &str) -> Option<&'static TypeInfo> {
    REGISTRY.by_name.get(name).copied()
}

/// Every built-in type, by identifier.
pub fn all() -> impl Iterator<Item = &'static TypeInfo> {
    REGISTRY.all.iter().copied()
}

/// The array type over `element`, [`Oid::INVALID`] when there is none.
pub fn array_type(element: Oid) -> Oid {
    info(element).map_or(Oid::INVALID, |t| t.array)
}

/// What an array (or int2vector, oidvector) of this type holds.
pub fn element_type(array: Oid) -> Option<Oid> {
    let info = info(array)?;
    (info.element.is_valid() && info.oid != Oid::NAME).then_some(info.element)
}

/// A type's SQL name with its modifier: `numeric(10,2)`, `timestamp(3) without time zone`.
/// An identifier that is not a built-in type gives `???`, as in PostgreSQL.
pub fn format_type(oid: Oid, typmod: i32) -> String {
    let Some(info) = info(oid) else {
        return if oid.is_valid() { "???".into() } else { "-".into() };
    };
    if info.is_array() {
        return format_type(info.element, typmod) + "[]";
    }
    if typmod < 0 {
        return info.display.into();
    }
    let mut out = String::new();
    let written = match oid {
        Oid::BPCHAR => write!(out, "character({})", typmod - 4),
        Oid::VARCHAR => write!(out, "character varying({})", typmod - 4),
        Oid::NUMERIC => {
            let (precision, scale) = numeric_typmod(typmod);
            write!(out, "numeric({precision},{scale})")
        }
        Oid::TIME => write!(out, "time({typmod}) without time zone"),
        Oid::TIMETZ => write!(out, "time({typmod}) with time zone"),
        Oid::TIMESTAMP => write!(out, "timestamp({typmod}) without time zone"),
        Oid::TIMESTAMPTZ => write!(out, "timestamp({typmod}) with time zone"),
        Oid::INTERVAL => write!(out, "interval{}", interval_suffix(typmod)),
        _ => write!(out, "{}", info.display),
    };
    debug_assert!(written.is_ok(), "a String takes all");
    out
}

/// Precision and scale of a numeric modifier; the scale is an 11-bit signed number.
pub fn numeric_typmod(typmod: i32) -> (i32, i32) {
    let raw = typmod - 4;
    ((raw >> 16) & 0xffff, ((raw & 0x7ff) ^ 1024) - 1024)
}

/// Field restriction and precision of an interval modifier, as SQL writes them.
fn interval_suffix(typmod: i32) -> String {
    let fields = match (typmod >> 16) & 0x7fff {
        0x0004 => " year",
        0x0002 => " month",
        0x0008 => " day",
        0x0400 => " hour",
        0x0800 => " minute",
        0x1000 => " second",
        0x0006 => " year to month",
        0x0408 => " day to hour",
        0x0c08 => " day to minute",
        0x1c08 => " day to second",
        0x0c00 => " hour to minute",
        0x1c00 => " hour to second",
        0x1800 => " minute to second",
        _ => "",
    };
    match typmod & 0xffff {
        0xffff => fields.into(),
        precision => format!("{fields}({precision})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_arrays_agree() {
        for t in all() {
            assert_eq!(info_by_name(t.name), Some(t));
            if t.array.is_valid() {
                let array = info(t.array).expect("array type exists");
                assert_eq!(array.element, t.oid);
                assert!(array.is_array());
            }
        }
    }

    #[test]
    fn type_names_with_modifiers() {
        assert_eq!(format_type(Oid::NUMERIC, ((10 << 16) | 2) + 4), "numeric(10,2)");
        assert_eq!(format_type(Oid::NUMERIC, ((3 << 16) | (-2 & 0x7ff)) + 4), "numeric(3,-2)");
        assert_eq!(format_type(Oid::TIMESTAMP, 3), "timestamp(3) without time zone");
        assert_eq!(format_type(Oid::VARCHAR_ARRAY, 24), "character varying(20)[]");
        assert_eq!(format_type(Oid::INTERVAL, 0x7fff_ffff), "interval");
        assert_eq!(format_type(Oid::INTERVAL, (0x1c08 << 16) | 3), "interval day to second(3)");
        assert_eq!(format_type(Oid::CHAR, -1), "\"char\"");
        assert_eq!(format_type(Oid(999_999), -1), "???");
    }
}
