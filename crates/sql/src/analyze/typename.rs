//! Type names: `varchar(10)`, `pg_catalog.int4[]`, `interval day to second(3)`, `my_table`.
//!
//! A name means a built-in type or a table's row type. Modifiers are checked and encoded as
//! PostgreSQL encodes them, because they are visible in pg_attribute and on the wire.

use super::node::{self, Node};
use super::scope::Binder;
use crate::error::{Result, SqlError, State};
use crate::types::{self, Oid, TypeRef};
use pg_query::protobuf::{self, TypeName};

/// The largest length of varchar(n) and char(n).
const MAX_LENGTH: i32 = 10_485_760;

impl Binder<'_> {
    /// The type that a name means.
    pub(crate) fn type_name(&self, name: &TypeName) -> Result<TypeRef> {
        if name.setof {
            return Err(self.unsupported("SETOF", name.location));
        }
        if name.pct_type {
            return Err(self.unsupported("%TYPE", name.location));
        }
        let names = node::names(&name.names);
        let Some(oid) = self.base_type(&names)? else {
            let message = format!("type \"{}\" does not exist", names.join("."));
            return Err(self.error(State::UNDEFINED_OBJECT, message, name.location));
        };
        let typmod = self.typmod(oid, name).map_err(|e| self.at(e, name.location))?;
        if name.array_bounds.is_empty() {
            return Ok(TypeRef::new(oid, typmod));
        }
        let array = types::array_type(oid);
        if !array.is_valid() {
            let message =
                format!("could not find array type for data type {}", self.type_text(oid));
            return Err(self.error(State::UNDEFINED_OBJECT, message, name.location));
        }
        Ok(TypeRef::new(array, typmod))
    }

    /// A type by its possibly qualified name.
    pub(crate) fn base_type(&self, names: &[&str]) -> Result<Option<Oid>> {
        let (schema, name) = node::qualified(names);
        let builtin = || types::info_by_name(name).map(|t| t.oid);
        let row_type = |relation: Oid| {
            let table = self.cx.catalog.tables.get(&relation)?;
            table.row_type.is_valid().then_some(table.row_type)
        };
        match schema {
            Some("pg_catalog") => {
                if let Some(oid) = builtin() {
                    return Ok(Some(oid));
                }
                let relation = self.cx.catalog.find_in_schema(Oid::PG_CATALOG_SCHEMA, name);
                Ok(relation.and_then(row_type))
            }
            Some(s) => Ok(self.find_relation(Some(s), name, -1)?.and_then(row_type)),
            None => match builtin() {
                Some(oid) => Ok(Some(oid)),
                None => Ok(self.find_relation(None, name, -1)?.and_then(row_type)),
            },
        }
    }

    fn typmod(&self, oid: Oid, name: &TypeName) -> Result<i32> {
        if name.typmods.is_empty() {
            return Ok(name.typemod);
        }
        let mut values = Vec::with_capacity(name.typmods.len());
        for n in node::each(&name.typmods) {
            values.push(modifier(n)?);
        }
        encode(oid, &values)
    }

    /// A type's SQL name, row types included.
    pub(crate) fn type_text(&self, oid: Oid) -> String {
        match self.table_of_row_type(oid) {
            Some(t)
                if self.cx.catalog.find_relation(self.cx.search_path, &t.name) == Some(t.oid) =>
            {
                t.name.clone()
            }
            Some(t) => format!("{}.{}", t.schema_name, t.name),
            None => types::format_type(oid, -1),
        }
    }
}

fn modifier(n: &Node) -> Result<i32> {
    use protobuf::a_const::Val;
    let bad = || {
        SqlError::new(State::SYNTAX_ERROR, "type modifiers must be simple constants or identifiers")
    };
    match n {
        Node::AConst(c) => match c.val.as_ref() {
            Some(Val::Ival(i)) => Ok(i.ival),
            // A zero is the protobuf default and may come without its message's content.
            None if !c.isnull => Ok(0),
            Some(Val::Sval(s)) => s.sval.trim().parse().map_err(|_| {
                SqlError::new(
                    State::INVALID_TEXT_REPRESENTATION,
                    format!("invalid input syntax for type integer: \"{}\"", s.sval),
                )
            }),
            Some(Val::Fval(f)) => Err(SqlError::new(
                State::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("value \"{}\" is out of range for type integer", f.fval),
            )),
            _ => Err(bad()),
        },
        _ => Err(bad()),
    }
}

fn invalid(message: String) -> SqlError {
    SqlError::new(State::INVALID_PARAMETER_VALUE, message)
}

/// The modifier that `values` mean for a type.
fn encode(oid: Oid, values: &[i32]) -> Result<i32> {
    match oid {
        Oid::VARCHAR => length("varchar", values),
        Oid::BPCHAR => length("char", values),
        Oid::NUMERIC => numeric(values),
        Oid::TIME | Oid::TIMESTAMP | Oid::TIMESTAMPTZ => time_precision(oid, values),
        _ if types::format_type(oid, -1) == "time with time zone" => time_precision(oid, values),
        Oid::INTERVAL => interval(values),
        _ => Err(SqlError::new(
            State::SYNTAX_ERROR,
            format!("type modifier is not allowed for type \"{}\"", types::format_type(oid, -1)),
        )),
    }
}

fn length(name: &str, values: &[i32]) -> Result<i32> {
    let [n] = values else { return Err(invalid("invalid type modifier".into())) };
    if *n < 1 {
        return Err(invalid(format!("length for type {name} must be at least 1")));
    }
    if *n > MAX_LENGTH {
        return Err(invalid(format!("length for type {name} cannot exceed {MAX_LENGTH}")));
    }
    Ok(n + 4)
}

fn numeric(values: &[i32]) -> Result<i32> {
    let (precision, scale) = match values {
        [p] => (*p, 0),
        [p, s] => (*p, *s),
        _ => return Err(invalid("invalid NUMERIC type modifier".into())),
    };
    if !(1..=1000).contains(&precision) {
        let message = format!("NUMERIC precision {precision} must be between 1 and 1000");
        return Err(invalid(message));
    }
    if !(-1000..=1000).contains(&scale) {
        let message = format!("NUMERIC scale {scale} must be between -1000 and 1000");
        return Err(invalid(message));
    }
    Ok(((precision << 16) | (scale & 0x7ff)) + 4)
}

fn time_precision(oid: Oid, values: &[i32]) -> Result<i32> {
    let [p] = values else { return Err(invalid("invalid type modifier".into())) };
    if *p < 0 {
        let name = types::format_type(oid, -1).to_uppercase();
        let (base, zone) = match name.split_once(" WITH") {
            Some((b, z)) if !z.starts_with("OUT") => (b.to_owned(), " WITH TIME ZONE"),
            Some((b, _)) => (b.to_owned(), ""),
            None => (name, ""),
        };
        return Err(invalid(format!("{base}({p}){zone} precision must not be negative")));
    }
    Ok((*p).min(6))
}

/// [fields] or [fields, precision]; the grammar encodes the fields.
fn interval(values: &[i32]) -> Result<i32> {
    const FULL_RANGE: i32 = 0x7fff;
    const FULL_PRECISION: i32 = 0xffff;
    let (fields, precision) = match values {
        [f] => (*f, FULL_PRECISION),
        [f, p] if *p < 0 => {
            let _ = f;
            return Err(invalid(format!("INTERVAL({p}) precision must not be negative")));
        }
        [f, p] => (*f, (*p).min(6)),
        _ => return Err(invalid("invalid INTERVAL type modifier".into())),
    };
    if fields == FULL_RANGE && precision == FULL_PRECISION {
        return Ok(-1);
    }
    Ok(((fields & FULL_RANGE) << 16) | (precision & FULL_PRECISION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers() {
        assert_eq!(encode(Oid::VARCHAR, &[10]).unwrap(), 14);
        assert_eq!(encode(Oid::NUMERIC, &[10, 2]).unwrap(), ((10 << 16) | 2) + 4);
        assert_eq!(encode(Oid::TIMESTAMP, &[9]).unwrap(), 6);
        let e = encode(Oid::VARCHAR, &[0]).unwrap_err();
        assert_eq!(e.message(), "length for type varchar must be at least 1");
        let e = encode(Oid::NUMERIC, &[1001]).unwrap_err();
        assert_eq!(e.message(), "NUMERIC precision 1001 must be between 1 and 1000");
        let e = encode(Oid::INT4, &[1]).unwrap_err();
        assert_eq!(e.message(), "type modifier is not allowed for type \"integer\"");
        let e = encode(Oid::TIMESTAMPTZ, &[-1]).unwrap_err();
        assert_eq!(e.message(), "TIMESTAMP(-1) WITH TIME ZONE precision must not be negative");
    }
}
