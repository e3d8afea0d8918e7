//! Type modifiers: from the numbers in `numeric(10, 2)` and back to text.

use super::{Oid, numeric_typmod};
use crate::error::{Result, SqlError, State};

/// Longest `varchar(n)` and `char(n)`.
const MAX_LENGTH: i32 = 10_485_760;
const MAX_PRECISION: i32 = 1000;

/// The modifier that the numbers in parentheses mean for a type. For intervals the first number
/// is the mask of fields, the second (optional) the precision.
pub fn from_list(ty: Oid, list: &[i32]) -> Result<i32> {
    let bad = |m: String| SqlError::new(State::INVALID_PARAMETER_VALUE, m);
    match (ty, list) {
        (Oid::VARCHAR | Oid::BPCHAR, [n]) => {
            let name = if ty == Oid::VARCHAR { "varchar" } else { "char" };
            if *n < 1 {
                return Err(bad(format!("length for type {name} must be at least 1")));
            }
            if *n > MAX_LENGTH {
                return Err(bad(format!("length for type {name} cannot exceed {MAX_LENGTH}")));
            }
            Ok(n + 4)
        }
        (Oid::NUMERIC, [precision]) => numeric(*precision, 0),
        (Oid::NUMERIC, [precision, scale]) => numeric(*precision, *scale),
        (Oid::NUMERIC, _) => Err(bad("invalid NUMERIC type modifier".into())),
        (Oid::TIMESTAMP, [p]) => precision("TIMESTAMP", "", *p),
        (Oid::TIMESTAMPTZ, [p]) => precision("TIMESTAMP", " WITH TIME ZONE", *p),
        (Oid::TIME, [p]) => precision("TIME", "", *p),
        (Oid::TIMETZ, [p]) => precision("TIME", " WITH TIME ZONE", *p),
        (Oid::INTERVAL, [fields]) => Ok((fields << 16) | 0xffff),
        (Oid::INTERVAL, [fields, p]) => Ok((fields << 16) | precision("INTERVAL", "", *p)?),
        _ => Err(bad("invalid type modifier".into())),
    }
}

fn numeric(precision: i32, scale: i32) -> Result<i32> {
    let bad = |m: String| SqlError::new(State::INVALID_PARAMETER_VALUE, m);
    if !(1..=MAX_PRECISION).contains(&precision) {
        return Err(bad(format!(
            "NUMERIC precision {precision} must be between 1 and {MAX_PRECISION}"
        )));
    }
    if !(-MAX_PRECISION..=MAX_PRECISION).contains(&scale) {
        return Err(bad(format!(
            "NUMERIC scale {scale} must be between -{MAX_PRECISION} and {MAX_PRECISION}"
        )));
    }
    Ok(((precision << 16) | (scale & 0x7ff)) + 4)
}

/// More than six fractional digits are cut to six.
fn precision(name: &str, suffix: &str, p: i32) -> Result<i32> {
    if p < 0 {
        return Err(SqlError::new(
            State::INVALID_PARAMETER_VALUE,
            format!("{name}({p}){suffix} precision must not be negative"),
        ));
    }
    Ok(p.min(6))
}

/// What follows the type's name: `(10,2)`, `(3) with time zone`, or nothing.
pub fn to_suffix(ty: Oid, typmod: i32) -> String {
    if typmod < 0 {
        return String::new();
    }
    match ty {
        Oid::VARCHAR | Oid::BPCHAR => format!("({})", typmod - 4),
        Oid::NUMERIC => {
            let (precision, scale) = numeric_typmod(typmod);
            format!("({precision},{scale})")
        }
        _ => {
            let full = super::format_type(ty, typmod);
            let plain = super::format_type(ty, -1);
            let word = plain.split(' ').next().unwrap_or_default();
            full.strip_prefix(word).unwrap_or_default().to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::format_type;

    #[test]
    fn modifiers_come_back() {
        for (ty, list, text) in [
            (Oid::VARCHAR, &[10][..], "character varying(10)"),
            (Oid::NUMERIC, &[10, 2], "numeric(10,2)"),
            (Oid::NUMERIC, &[5, -3], "numeric(5,-3)"),
            (Oid::TIMESTAMPTZ, &[9], "timestamp(6) with time zone"),
            (Oid::INTERVAL, &[0x1c08, 3], "interval day to second(3)"),
        ] {
            assert_eq!(format_type(ty, from_list(ty, list).unwrap()), text);
        }
        assert!(from_list(Oid::VARCHAR, &[0]).is_err());
        assert!(from_list(Oid::NUMERIC, &[1001]).is_err());
        assert_eq!(to_suffix(Oid::TIMESTAMPTZ, 3), "(3) with time zone");
    }
}
