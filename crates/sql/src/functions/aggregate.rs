//! Aggregates.
//!
//! A state is fed rows with `update` and asked once with `finish`. States skip NULLs themselves
//! where SQL says so, hence the executor feeds every row. DISTINCT, ORDER BY and FILTER are the
//! executor's. Sums of integers are exact and wider than their input, as in PostgreSQL.

use super::args::{FromDatum, arg, arity};
use super::int::bigint_range;
use super::{AggState, float};
use crate::error::{Result, SqlError, State};
use crate::types::numeric::{Numeric, arith, math};
use crate::types::{self, ArrayValue, Datum, Interval, Oid};
use compact_str::CompactString;
use std::sync::Arc;

type Boxed = Box<dyn AggState>;

struct CountAll(i64);

impl AggState for CountAll {
    fn update(&mut self, _args: &[Datum]) -> Result<()> {
        self.0 += 1;
        Ok(())
    }
    fn finish(&mut self) -> Result<Datum> {
        Ok(Datum::Int8(self.0))
    }
}

struct Count(i64);

impl AggState for Count {
    fn update(&mut self, args: &[Datum]) -> Result<()> {
        self.0 += i64::from(args.iter().all(|d| !d.is_null()));
        Ok(())
    }
    fn finish(&mut self) -> Result<Datum> {
        Ok(Datum::Int8(self.0))
    }
}

pub(crate) fn count_all(_: &[Oid]) -> Boxed {
    Box::new(CountAll(0))
}

pub(crate) fn count(_: &[Oid]) -> Boxed {
    Box::new(Count(0))
}

/// sum(smallint), sum(integer): bigint.
struct SumInt(Option<i64>);

impl AggState for SumInt {
    fn update(&mut self, args: &[Datum]) -> Result<()> {
        let v = match arg(args, 0) {
            Datum::Int4(v) => i64::from(*v),
            Datum::Int2(v) => i64::from(*v),
            _ => return Ok(()),
        };
        self.0 = Some(self.0.unwrap_or(0).checked_add(v).ok_or_else(bigint_range)?);
        Ok(())
    }
    fn finish(&mut self) -> Result<Datum> {
        Ok(self.0.map_or(Datum::Null, Datum::Int8))
    }
}

pub(crate) fn sum_int(_: &[Oid]) -> Boxed {
    Box::new(SumInt(None))
}

/// Folds values two at a time with a function that keeps the type.
struct Fold {
    value: Datum,
    with: fn(Datum, &Datum) -> Result<Datum>,
}

impl AggState for Fold {
    fn update(&mut self, args: &[Datum]) -> Result<()> {
        let v = arg(args, 0);
        if v.is_null() {
            return Ok(());
        }
        let old = std::mem::take(&mut self.value);
        self.value = if old.is_null() { v.clone() } else { (self.with)(old, v)? };
        Ok(())
    }
    fn finish(&mut self) -> Result<Datum> {
        Ok(std::mem::take(&mut self.value))
    }
}

fn fold(with: fn(Datum, &Datum) -> Result<Datum>) -> Boxed {
    Box::new(Fold { value: Datum::Null, with })
}

pub(crate) fn min(_: &[Oid]) -> Boxed {
    fold(|a, b| Ok(if types::compare(&a, b).is_le() { a } else { b.clone() }))
}

pub(crate) fn max(_: &[Oid]) -> Boxed {
    fold(|a, b| Ok(if types::compare(&a, b).is_ge() { a } else { b.clone() }))
}

pub(crate) fn sum_float4(_: &[Oid]) -> Boxed {
    fold(|a, b| {
        let (a, b) = (f32::get(&a)?, f32::get(b)?);
        float::checked((a + b).into(), a.is_infinite() || b.is_infinite(), true)?;
        Ok(Datum::Float4(a + b))
    })
}

pub(crate) fn bool_and(_: &[Oid]) -> Boxed {
    fold(|a, b| Ok(Datum::Bool(bool::get(&a)? && bool::get(b)?)))
}

pub(crate) fn bool_or(_: &[Oid]) -> Boxed {
    fold(|a, b| Ok(Datum::Bool(bool::get(&a)? || bool::get(b)?)))
}

macro_rules! bits {
    ($($name:ident: $op:tt;)*) => {
        $(pub(crate) fn $name(_: &[Oid]) -> Boxed {
            fold(|a, b| match (&a, b) {
                (Datum::Int2(a), Datum::Int2(b)) => Ok(Datum::Int2(a $op b)),
                (Datum::Int4(a), Datum::Int4(b)) => Ok(Datum::Int4(a $op b)),
                (Datum::Int8(a), Datum::Int8(b)) => Ok(Datum::Int8(a $op b)),
                _ => Err(super::args::mismatch(b)),
            })
        })*
    };
}

bits! {
    bit_and: &;
    bit_or: |;
    bit_xor: ^;
}

/// What a float aggregate answers from count, sum and sum of squared deviations.
#[derive(Clone, Copy)]
enum Moment {
    Sum,
    Avg,
    VarPop,
    VarSamp,
    StddevPop,
    StddevSamp,
}

/// Youngs and Cramer's running moments.
struct Moments {
    what: Moment,
    n: f64,
    sum: f64,
    squares: f64,
}

impl AggState for Moments {
    fn update(&mut self, args: &[Datum]) -> Result<()> {
        let v = match arg(args, 0) {
            Datum::Float8(v) => *v,
            Datum::Float4(v) => f64::from(*v),
            _ => return Ok(()),
        };
        let before = self.n;
        self.n += 1.0;
        let old_sum = self.sum;
        self.sum += v;
        if before > 0.0 {
            let t = v * self.n - self.sum;
            self.squares += t * t / (self.n * before);
            if self.sum.is_infinite() || self.squares.is_infinite() {
                float::checked(self.sum, old_sum.is_infinite() || v.is_infinite(), true)?;
                self.squares = f64::NAN;
            }
        } else if !v.is_finite() {
            self.squares = f64::NAN;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Datum> {
        let enough = match self.what {
            Moment::VarSamp | Moment::StddevSamp => self.n > 1.0,
            _ => self.n > 0.0,
        };
        Ok(match (enough, self.what) {
            (false, _) => Datum::Null,
            (_, Moment::Sum) => Datum::Float8(self.sum),
            (_, Moment::Avg) => Datum::Float8(self.sum / self.n),
            (_, Moment::VarPop) => Datum::Float8(self.squares / self.n),
            (_, Moment::VarSamp) => Datum::Float8(self.squares / (self.n - 1.0)),
            (_, Moment::StddevPop) => Datum::Float8((self.squares / self.n).sqrt()),
            (_, Moment::StddevSamp) => Datum::Float8((self.squares / (self.n - 1.0)).sqrt()),
        })
    }
}

fn moments(what: Moment) -> Boxed {
    Box::new(Moments { what, n: 0.0, sum: 0.0, squares: 0.0 })
}

pub(crate) fn sum_float8(_: &[Oid]) -> Boxed {
    moments(Moment::Sum)
}
pub(crate) fn avg_float(_: &[Oid]) -> Boxed {
    moments(Moment::Avg)
}
pub(crate) fn var_pop_float(_: &[Oid]) -> Boxed {
    moments(Moment::VarPop)
}
pub(crate) fn var_samp_float(_: &[Oid]) -> Boxed {
    moments(Moment::VarSamp)
}
pub(crate) fn stddev_pop_float(_: &[Oid]) -> Boxed {
    moments(Moment::StddevPop)
}
pub(crate) fn stddev_samp_float(_: &[Oid]) -> Boxed {
    moments(Moment::StddevSamp)
}

/// string_agg: values with what separates each from the one before.
struct StringAgg(Option<CompactString>);

impl AggState for StringAgg {
    fn update(&mut self, args: &[Datum]) -> Result<()> {
        let Datum::Text(v) = arg(args, 0) else { return Ok(()) };
        match &mut self.0 {
            None => self.0 = Some(v.clone()),
            Some(s) => {
                if let Datum::Text(separator) = arg(args, 1) {
                    s.push_str(separator);
                }
                s.push_str(v);
            }
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<Datum> {
        Ok(self.0.take().map_or(Datum::Null, Datum::Text))
    }
}

struct BytesAgg(Option<Vec<u8>>);

impl AggState for BytesAgg {
    fn update(&mut self, args: &[Datum]) -> Result<()> {
        let Datum::Bytea(v) = arg(args, 0) else { return Ok(()) };
        match &mut self.0 {
            None => self.0 = Some(v.to_vec()),
            Some(bytes) => {
                if let Datum::Bytea(separator) = arg(args, 1) {
                    bytes.extend_from_slice(separator);
                }
                bytes.extend_from_slice(v);
            }
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<Datum> {
        Ok(self.0.take().map_or(Datum::Null, |v| Datum::Bytea(v.into())))
    }
}

pub(crate) fn string_agg(_: &[Oid]) -> Boxed {
    Box::new(StringAgg(None))
}

pub(crate) fn bytea_agg(_: &[Oid]) -> Boxed {
    Box::new(BytesAgg(None))
}

/// array_agg of scalars keeps NULLs; of arrays adds a dimension and wants equal shapes.
struct ArrayAgg {
    element: Oid,
    items: Vec<Datum>,
    inner: Option<Vec<(i32, i32)>>,
    rows: i32,
    of_arrays: bool,
}

impl AggState for ArrayAgg {
    fn update(&mut self, args: &[Datum]) -> Result<()> {
        let value = args.first().ok_or_else(arity)?;
        if self.items.len() >= types::array::MAX_ITEMS {
            return Err(types::array::too_large());
        }
        self.rows += 1;
        if !self.of_arrays {
            self.items.push(value.clone());
            return Ok(());
        }
        let bad = |m: &str| SqlError::new(State::ARRAY_SUBSCRIPT_ERROR, m);
        let Datum::Array(array) = value else {
            return Err(SqlError::new(
                State::NULL_VALUE_NOT_ALLOWED,
                "cannot accumulate null arrays",
            ));
        };
        if array.dims.is_empty() {
            return Err(bad("cannot accumulate empty arrays"));
        }
        match &self.inner {
            None => {
                if array.dims.len() >= types::array::MAX_DIMS {
                    return Err(types::array::too_many_dims(array.dims.len() + 1));
                }
                self.inner = Some(array.dims.clone());
            }
            Some(dims) if *dims != array.dims => {
                return Err(bad("cannot accumulate arrays of different dimensionality"));
            }
            Some(_) => {}
        }
        self.items.extend(array.items.iter().cloned());
        Ok(())
    }

    fn finish(&mut self) -> Result<Datum> {
        if self.rows == 0 {
            return Ok(Datum::Null);
        }
        let mut dims = vec![(self.rows, 1)];
        dims.extend(self.inner.take().unwrap_or_default());
        let items = std::mem::take(&mut self.items);
        Ok(Datum::Array(Arc::new(ArrayValue { element: self.element, dims, items })))
    }
}

pub(crate) fn array_agg(types: &[Oid]) -> Boxed {
    let ty = types.first().copied().unwrap_or(Oid::TEXT);
    let element = if types::array::is_array_type(ty) { types::element_type(ty) } else { None };
    Box::new(ArrayAgg {
        element: element.unwrap_or(if ty == Oid::UNKNOWN { Oid::TEXT } else { ty }),
        items: Vec::new(),
        inner: None,
        rows: 0,
        of_arrays: element.is_some(),
    })
}

/// Exact sums of integers and numerics: in 128 bits while they fit, then as numerics.
struct Exact {
    fast: i128,
    slow: Numeric,
}

impl Exact {
    fn new() -> Exact {
        Exact { fast: 0, slow: Numeric::ZERO }
    }

    fn add_int(&mut self, v: i128) -> Result<()> {
        match self.fast.checked_add(v) {
            Some(sum) => self.fast = sum,
            None => {
                self.slow = arith::add(&self.slow, &big(self.fast)?)?;
                self.fast = v;
            }
        }
        Ok(())
    }

    fn add(&mut self, v: &Numeric) -> Result<()> {
        self.slow = arith::add(&self.slow, v)?;
        Ok(())
    }

    fn total(&self) -> Result<Numeric> {
        if self.fast == 0 {
            Ok(self.slow.clone())
        } else {
            arith::add(&self.slow, &big(self.fast)?)
        }
    }
}

fn big(v: i128) -> Result<Numeric> {
    Numeric::from_biguint(v < 0, &v.unsigned_abs().into(), 0)
}

/// What a numeric aggregate answers from count, sum and sum of squares.
struct ExactMoments {
    what: Moment,
    n: i64,
    sum: Exact,
    squares: Exact,
}

impl AggState for ExactMoments {
    fn update(&mut self, args: &[Datum]) -> Result<()> {
        let squared = !matches!(self.what, Moment::Sum | Moment::Avg);
        let int = match arg(args, 0) {
            Datum::Int8(v) => i128::from(*v),
            Datum::Int4(v) => i128::from(*v),
            Datum::Int2(v) => i128::from(*v),
            Datum::Numeric(v) => {
                self.n += 1;
                self.sum.add(v)?;
                return if squared { self.squares.add(&arith::mul(v, v)?) } else { Ok(()) };
            }
            _ => return Ok(()),
        };
        self.n += 1;
        self.sum.add_int(int)?;
        if squared { self.squares.add_int(int * int) } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<Datum> {
        if self.n == 0 {
            return Ok(Datum::Null);
        }
        let sum = self.sum.total()?;
        let (sample, root) = match self.what {
            Moment::Sum => return Ok(Datum::Numeric(Arc::new(sum))),
            Moment::Avg => {
                let average = arith::div(&sum, &Numeric::from(self.n))?;
                return Ok(Datum::Numeric(Arc::new(average)));
            }
            Moment::VarPop => (false, false),
            Moment::VarSamp => (true, false),
            Moment::StddevPop => (false, true),
            Moment::StddevSamp => (true, true),
        };
        let spread = math::variance(self.n, &sum, &self.squares.total()?, sample, root)?;
        Ok(spread.map_or(Datum::Null, |v| Datum::Numeric(Arc::new(v))))
    }
}

fn exact(what: Moment) -> Boxed {
    Box::new(ExactMoments { what, n: 0, sum: Exact::new(), squares: Exact::new() })
}

pub(crate) fn sum_numeric(_: &[Oid]) -> Boxed {
    exact(Moment::Sum)
}
pub(crate) fn avg_numeric(_: &[Oid]) -> Boxed {
    exact(Moment::Avg)
}
pub(crate) fn var_pop_numeric(_: &[Oid]) -> Boxed {
    exact(Moment::VarPop)
}
pub(crate) fn var_samp_numeric(_: &[Oid]) -> Boxed {
    exact(Moment::VarSamp)
}
pub(crate) fn stddev_pop_numeric(_: &[Oid]) -> Boxed {
    exact(Moment::StddevPop)
}
pub(crate) fn stddev_samp_numeric(_: &[Oid]) -> Boxed {
    exact(Moment::StddevSamp)
}

struct Intervals {
    average: bool,
    n: i64,
    sum: Interval,
}

impl AggState for Intervals {
    fn update(&mut self, args: &[Datum]) -> Result<()> {
        if let Datum::Interval(v) = arg(args, 0) {
            self.sum = self.sum.checked_add(*v)?;
            self.n += 1;
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<Datum> {
        Ok(match (self.n, self.average) {
            (0, _) => Datum::Null,
            (_, false) => Datum::Interval(self.sum),
            (n, true) => Datum::Interval(self.sum.divide(n as f64)?),
        })
    }
}

pub(crate) fn sum_interval(_: &[Oid]) -> Boxed {
    Box::new(Intervals { average: false, n: 0, sum: Interval::ZERO })
}

pub(crate) fn avg_interval(_: &[Oid]) -> Boxed {
    Box::new(Intervals { average: true, n: 0, sum: Interval::ZERO })
}

/// Aggregates over pairs (Y, X): linear regression.
#[derive(Clone, Copy)]
enum Pair {
    Count,
    Sxx,
    Syy,
    Sxy,
    AvgX,
    AvgY,
    CovarPop,
    CovarSamp,
    Corr,
    R2,
    Slope,
    Intercept,
}

struct Regression {
    what: Pair,
    n: f64,
    sx: f64,
    sxx: f64,
    sy: f64,
    syy: f64,
    sxy: f64,
}

impl AggState for Regression {
    fn update(&mut self, args: &[Datum]) -> Result<()> {
        let (Datum::Float8(y), Datum::Float8(x)) = (arg(args, 0), arg(args, 1)) else {
            return Ok(());
        };
        let before = self.n;
        self.n += 1.0;
        self.sx += x;
        self.sy += y;
        if before > 0.0 {
            let tx = x * self.n - self.sx;
            let ty = y * self.n - self.sy;
            let scale = 1.0 / (self.n * before);
            self.sxx += tx * tx * scale;
            self.syy += ty * ty * scale;
            self.sxy += tx * ty * scale;
        } else if !x.is_finite() || !y.is_finite() {
            (self.sxx, self.syy, self.sxy) = (f64::NAN, f64::NAN, f64::NAN);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Datum> {
        let (n, sxx, syy, sxy) = (self.n, self.sxx, self.syy, self.sxy);
        if let Pair::Count = self.what {
            return Ok(Datum::Int8(n as i64));
        }
        if n < 1.0 || (n < 2.0 && matches!(self.what, Pair::CovarSamp)) {
            return Ok(Datum::Null);
        }
        let value = match self.what {
            Pair::Count => n,
            Pair::Sxx => sxx,
            Pair::Syy => syy,
            Pair::Sxy => sxy,
            Pair::AvgX => self.sx / n,
            Pair::AvgY => self.sy / n,
            Pair::CovarPop => sxy / n,
            Pair::CovarSamp => sxy / (n - 1.0),
            Pair::Corr if sxx == 0.0 || syy == 0.0 => return Ok(Datum::Null),
            Pair::Corr => sxy / (sxx * syy).sqrt(),
            Pair::R2 if sxx == 0.0 => return Ok(Datum::Null),
            Pair::R2 if syy == 0.0 => 1.0,
            Pair::R2 => (sxy * sxy) / (sxx * syy),
            Pair::Slope | Pair::Intercept if sxx == 0.0 => return Ok(Datum::Null),
            Pair::Slope => sxy / sxx,
            Pair::Intercept => (self.sy - self.sx * sxy / sxx) / n,
        };
        Ok(Datum::Float8(value))
    }
}

macro_rules! regression {
    ($($name:ident: $what:ident;)*) => {
        $(pub(crate) fn $name(_: &[Oid]) -> Boxed {
            let what = Pair::$what;
            Box::new(Regression { what, n: 0.0, sx: 0.0, sxx: 0.0, sy: 0.0, syy: 0.0, sxy: 0.0 })
        })*
    };
}

regression! {
    regr_count: Count;
    regr_sxx: Sxx;
    regr_syy: Syy;
    regr_sxy: Sxy;
    regr_avgx: AvgX;
    regr_avgy: AvgY;
    covar_pop: CovarPop;
    covar_samp: CovarSamp;
    corr: Corr;
    regr_r2: R2;
    regr_slope: Slope;
    regr_intercept: Intercept;
}
