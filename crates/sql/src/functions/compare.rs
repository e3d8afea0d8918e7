//! Comparison functions: the generic ones over [`types::compare`], and direct ones for the
//! types on the hot path.

use super::FnContext;
use super::args::{Any, fns};
use crate::error::Result;
use crate::types::compare::float_order;
use crate::types::{self, Datum, Oid};
use std::cmp::Ordering;

fns! {
    fn eq(_cx; a: Any<'_>, b: Any<'_>) -> bool { types::compare(a.0, b.0).is_eq() }
    fn ne(_cx; a: Any<'_>, b: Any<'_>) -> bool { types::compare(a.0, b.0).is_ne() }
    fn lt(_cx; a: Any<'_>, b: Any<'_>) -> bool { types::compare(a.0, b.0).is_lt() }
    fn le(_cx; a: Any<'_>, b: Any<'_>) -> bool { types::compare(a.0, b.0).is_le() }
    fn gt(_cx; a: Any<'_>, b: Any<'_>) -> bool { types::compare(a.0, b.0).is_gt() }
    fn ge(_cx; a: Any<'_>, b: Any<'_>) -> bool { types::compare(a.0, b.0).is_ge() }
    fn cmp(_cx; a: Any<'_>, b: Any<'_>) -> i32 { types::compare(a.0, b.0) as i32 }

    fn larger(_cx; a: Any<'_>, b: Any<'_>) -> Datum {
        if types::compare(a.0, b.0).is_ge() { a.0.clone() } else { b.0.clone() }
    }
    fn smaller(_cx; a: Any<'_>, b: Any<'_>) -> Datum {
        if types::compare(a.0, b.0).is_le() { a.0.clone() } else { b.0.clone() }
    }
}

fn blank_padded(a: &Datum, b: &Datum) -> Ordering {
    types::compare::compare_as(Oid::BPCHAR, a, b)
}

fns! {
    fn bpchar_eq(_cx; a: Any<'_>, b: Any<'_>) -> bool { blank_padded(a.0, b.0).is_eq() }
    fn bpchar_ne(_cx; a: Any<'_>, b: Any<'_>) -> bool { blank_padded(a.0, b.0).is_ne() }
    fn bpchar_lt(_cx; a: Any<'_>, b: Any<'_>) -> bool { blank_padded(a.0, b.0).is_lt() }
    fn bpchar_le(_cx; a: Any<'_>, b: Any<'_>) -> bool { blank_padded(a.0, b.0).is_le() }
    fn bpchar_gt(_cx; a: Any<'_>, b: Any<'_>) -> bool { blank_padded(a.0, b.0).is_gt() }
    fn bpchar_ge(_cx; a: Any<'_>, b: Any<'_>) -> bool { blank_padded(a.0, b.0).is_ge() }
    fn bpchar_cmp(_cx; a: Any<'_>, b: Any<'_>) -> i32 { blank_padded(a.0, b.0) as i32 }
    fn bpchar_larger(_cx; a: Any<'_>, b: Any<'_>) -> Datum {
        if blank_padded(a.0, b.0).is_ge() { a.0.clone() } else { b.0.clone() }
    }
    fn bpchar_smaller(_cx; a: Any<'_>, b: Any<'_>) -> Datum {
        if blank_padded(a.0, b.0).is_le() { a.0.clone() } else { b.0.clone() }
    }
}

#[inline(always)]
fn order<A, B>(by: impl Fn(A, B) -> Ordering, a: A, b: B) -> Ordering {
    by(a, b)
}

/// Six comparisons and a three-way one between two Rust types over a common order.
macro_rules! comparisons {
    ($(($a:ty, $b:ty, $order:expr) $eq:ident $ne:ident $lt:ident $le:ident $gt:ident $ge:ident
        $cmp:ident;)*) => {
        $(fns! {
            fn $eq(_cx; a: $a, b: $b) -> bool { order::<$a, $b>($order, a, b).is_eq() }
            fn $ne(_cx; a: $a, b: $b) -> bool { order::<$a, $b>($order, a, b).is_ne() }
            fn $lt(_cx; a: $a, b: $b) -> bool { order::<$a, $b>($order, a, b).is_lt() }
            fn $le(_cx; a: $a, b: $b) -> bool { order::<$a, $b>($order, a, b).is_le() }
            fn $gt(_cx; a: $a, b: $b) -> bool { order::<$a, $b>($order, a, b).is_gt() }
            fn $ge(_cx; a: $a, b: $b) -> bool { order::<$a, $b>($order, a, b).is_ge() }
            fn $cmp(_cx; a: $a, b: $b) -> i32 { order::<$a, $b>($order, a, b) as i32 }
        })*
    };
}

comparisons! {
    (i16, i16, |a, b| a.cmp(&b)) i22eq i22ne i22lt i22le i22gt i22ge i22cmp;
    (i32, i32, |a, b| a.cmp(&b)) i44eq i44ne i44lt i44le i44gt i44ge i44cmp;
    (i64, i64, |a, b| a.cmp(&b)) i88eq i88ne i88lt i88le i88gt i88ge i88cmp;
    (i16, i32, |a, b| i32::from(a).cmp(&b)) i24eq i24ne i24lt i24le i24gt i24ge i24cmp;
    (i32, i16, |a, b| a.cmp(&i32::from(b))) i42eq i42ne i42lt i42le i42gt i42ge i42cmp;
    (i16, i64, |a, b| i64::from(a).cmp(&b)) i28eq i28ne i28lt i28le i28gt i28ge i28cmp;
    (i64, i16, |a, b| a.cmp(&i64::from(b))) i82eq i82ne i82lt i82le i82gt i82ge i82cmp;
    (i32, i64, |a, b| i64::from(a).cmp(&b)) i48eq i48ne i48lt i48le i48gt i48ge i48cmp;
    (i64, i32, |a, b| a.cmp(&i64::from(b))) i84eq i84ne i84lt i84le i84gt i84ge i84cmp;
    (f32, f32, |a, b| float_order(a.into(), b.into())) f44eq f44ne f44lt f44le f44gt f44ge f44cmp;
    (f64, f64, float_order) f88eq f88ne f88lt f88le f88gt f88ge f88cmp;
    (f32, f64, |a, b| float_order(a.into(), b)) f48eq f48ne f48lt f48le f48gt f48ge f48cmp;
    (f64, f32, |a, b| float_order(a, b.into())) f84eq f84ne f84lt f84le f84gt f84ge f84cmp;
    (u32, u32, |a, b| a.cmp(&b)) oideq oidne oidlt oidle oidgt oidge oidcmp;
}

/// Text equality is the commonest of all: equal lengths first, then bytes.
pub(crate) fn texteq(_cx: &dyn FnContext, args: &[Datum]) -> Result<Datum> {
    match args {
        [Datum::Text(a), Datum::Text(b)] => Ok(Datum::Bool(a == b)),
        _ => eq(_cx, args),
    }
}

fns! {
    fn xid_eq_int4(_cx; a: u32, b: i32) -> bool { a == b as u32 }
    fn xid_ne_int4(_cx; a: u32, b: i32) -> bool { a != b as u32 }
}
