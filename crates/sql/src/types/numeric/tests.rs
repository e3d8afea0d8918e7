//! Properties against big rational arithmetic, and facts taken from PostgreSQL 15.

use super::*;
use num_bigint::BigInt;
use proptest::prelude::*;

fn num(s: &str) -> Numeric {
    Numeric::parse(s).unwrap_or_else(|e| panic!("{s}: {e}"))
}

/// The value as an integer times 10^-scale.
fn big(n: &Numeric, scale: i32) -> BigInt {
    let v = BigInt::from(n.to_biguint(scale));
    if n.is_negative() { -v } else { v }
}

fn decimal() -> impl Strategy<Value = String> {
    ("-?", "[0-9]{1,30}", prop::option::of("[0-9]{1,25}")).prop_map(|(sign, whole, fraction)| {
        match fraction {
            Some(f) => format!("{sign}{whole}.{f}"),
            None => format!("{sign}{whole}"),
        }
    })
}

proptest! {
    #[test]
    fn text_round_trips(s in decimal()) {
        let n = num(&s);
        let text = n.to_string();
        prop_assert_eq!(&num(&text), &n);
        let mut bytes = Vec::new();
        n.write_binary(&mut bytes);
        prop_assert_eq!(Numeric::read_binary(&bytes).unwrap(), n);
    }

    #[test]
    fn sums_products_and_order_are_exact(a in decimal(), b in decimal()) {
        let (x, y) = (num(&a), num(&b));
        let s = 60;
        prop_assert_eq!(big(&arith::add(&x, &y).unwrap(), s), big(&x, s) + big(&y, s));
        prop_assert_eq!(big(&arith::sub(&x, &y).unwrap(), s), big(&x, s) - big(&y, s));
        let product = arith::mul(&x, &y).unwrap();
        prop_assert_eq!(big(&product, 2 * s), big(&x, s) * big(&y, s));
        prop_assert_eq!(product.dscale(), x.dscale() + y.dscale());
        prop_assert_eq!(x.compare(&y), big(&x, s).cmp(&big(&y, s)));
    }

    #[test]
    fn quotients_are_rounded_half_away(a in decimal(), b in decimal()) {
        let (x, y) = (num(&a), num(&b));
        prop_assume!(!y.is_zero());
        let q = arith::div(&x, &y).unwrap();
        let scale = q.dscale();
        prop_assert_eq!(scale, arith::select_div_scale(&x, &y));
        // |x/y - q| <= half a unit of the last digit.
        let s = 60;
        let unit = BigInt::from(10).pow(scale as u32);
        let error: BigInt = (big(&x, s) * &unit - big(&q, scale) * big(&y, s)) * 2;
        prop_assert!(error.magnitude() <= big(&y, s).magnitude());
        let r = arith::modulo(&x, &y).unwrap();
        let whole = arith::div_trunc(&x, &y).unwrap();
        let back = arith::add(&arith::mul(&whole, &y).unwrap(), &r).unwrap();
        prop_assert!(back.compare(&x).is_eq());
    }

    #[test]
    fn rounding_is_decimal(a in decimal(), scale in -12i32..12) {
        let n = num(&a);
        let rounded = n.round(scale).unwrap();
        let cut = n.trunc(scale).unwrap();
        let s = 60;
        let unit = BigInt::from(10).pow((s - scale) as u32);
        let exact = big(&n, s);
        let remainder = &exact % &unit;
        prop_assert_eq!(big(&cut, s), &exact - &remainder);
        let mut expected = &exact - &remainder;
        if remainder.magnitude() * 2u32 >= *unit.magnitude() {
            expected += if n.is_negative() { -&unit } else { unit.clone() };
        }
        prop_assert_eq!(big(&rounded, s), expected);
    }

    #[test]
    fn small_and_big_paths_agree(a in any::<i128>(), scale in 0i32..30) {
        let n = Numeric::from_i128(a, scale);
        let magnitude = BigUint::from(a.unsigned_abs());
        prop_assert_eq!(&n, &Numeric::from_biguint(a < 0, &magnitude, scale).unwrap());
        prop_assert_eq!(n.to_biguint(scale), magnitude);
        prop_assert!(n.min_scale() <= scale);
        prop_assert_eq!(n.round(n.min_scale()).unwrap().compare(&n), Ordering::Equal);
    }
}

#[test]
fn texts() {
    for (input, output) in [
        ("0", "0"),
        ("-0.00", "0.00"),
        (" 12345.67 ", "12345.67"),
        ("1e3", "1000"),
        ("1.5e-3", "0.0015"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1e-7", "0.0000001"),
        ("100000000", "100000000"),
        ("0.00001000", "0.00001000"),
        ("nan", "NaN"),
        ("-inf", "-Infinity"),
        ("+Infinity", "Infinity"),
        ("1.23456789012345678901234567890", "1.23456789012345678901234567890"),
    ] {
        assert_eq!(num(input).to_string(), output, "{input}");
    }
    for bad in ["", ".", "e5", "1e", "1.2.3", "0x1", "--1", "-nan", "1 2", "1_0"] {
        assert!(Numeric::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn scales_of_quotients_and_roots() {
    for (a, b, quotient) in [
        ("1", "3", "0.33333333333333333333"),
        ("2", "3", "0.66666666666666666667"),
        ("10", "3", "3.3333333333333333"),
        ("100000", "7", "14285.714285714286"),
        ("1", "2", "0.50000000000000000000"),
        ("6.00", "2", "3.0000000000000000"),
        ("1", "100000000", "0.0000000100000000000000000000"),
        ("12345678901234567890", "3", "4115226300411522630"),
    ] {
        assert_eq!(arith::div(&num(a), &num(b)).unwrap().to_string(), quotient, "{a}/{b}");
    }
    for (n, root) in [
        ("0", "0.000000000000000"),
        ("2", "1.414213562373095"),
        ("10000", "100.0000000000000"),
        ("12345678.9", "3513.6418286444622"),
        ("0.000000123", "0.0003507135583350036"),
        ("99999999", "9999.9999499999999"),
        ("1e40", "100000000000000000000"),
        ("1e-40", "0.0000000000000000000100000000000000000000"),
    ] {
        assert_eq!(math::sqrt(&num(n)).unwrap().to_string(), root, "sqrt {n}");
    }
}

#[test]
fn exponentials_and_logarithms() {
    for (n, e) in [
        ("0", "1.0000000000000000"),
        ("1", "2.7182818284590452"),
        ("10", "22026.465794806717"),
        ("-10", "0.00004539992976248485"),
        ("100", "26881171418161354484126255515800135873611119"),
        ("-100", "0.00000000000000000000000000000000000000000003720075976020836"),
        ("0.0001", "1.0001000050001667"),
    ] {
        assert_eq!(math::exp(&num(n)).unwrap().to_string(), e, "exp {n}");
    }
    for (n, l) in [
        ("1", "0.0000000000000000"),
        ("2", "0.6931471805599453"),
        ("1.05", "0.048790164169432003"),
        ("0.95", "-0.051293294387550533"),
        ("1.0001", "0.00009999500033330834"),
        ("1e20", "46.051701859880914"),
        ("1e-20", "-46.05170185988091368036"),
        ("2.718281828", "0.9999999998311267"),
    ] {
        assert_eq!(math::ln(&num(n)).unwrap().to_string(), l, "ln {n}");
    }
    for (base, n, l) in [
        ("2", "8", "3.0000000000000000"),
        ("1.1", "100", "48.317715856193611"),
        ("2", "1e30", "99.657842846620870"),
        ("10", "0.001", "-3.0000000000000000"),
    ] {
        assert_eq!(math::log(&num(base), &num(n)).unwrap().to_string(), l, "log {base} {n}");
    }
}

#[test]
fn powers() {
    for (base, exponent, result) in [
        ("2", "8", "256.0000000000000000"),
        ("2", "0.5", "1.4142135623730950"),
        ("1.1", "100", "13780.6123398222701841"),
        ("10", "-2", "0.0100000000000000"),
        ("0", "0", "1.0000000000000000"),
        ("-2", "-3", "-0.1250000000000000"),
        ("1.5", "2.5", "2.7556759606310754"),
        ("100", "0.5", "10.000000000000000"),
        ("1.0001", "10000", "2.7181459268252249"),
        ("0.1", "30", "0.0000000000000000"),
        ("99.999", "-3", "0.0000010000300006"),
        ("2", "200.5", "2272553576084360916141657902949647315979581976043234410928602.2"),
    ] {
        let power = math::power(&num(base), &num(exponent)).unwrap();
        assert_eq!(power.to_string(), result, "{base}^{exponent}");
    }
    assert!(math::power(&num("0"), &num("-1")).is_err());
    assert!(math::power(&num("-2"), &num("0.5")).is_err());
    assert!(math::power(&num("10"), &num("1e9")).is_err());
}

#[test]
fn modifiers_bound_values() {
    let typmod = |p: i32, s: i32| ((p << 16) | (s & 0x7ff)) + 4;
    assert_eq!(num("12.345").apply_typmod(typmod(4, 2)).unwrap().to_string(), "12.35");
    assert_eq!(num("12345").apply_typmod(typmod(3, -2)).unwrap().to_string(), "12300");
    let e = num("123.456").apply_typmod(typmod(4, 2)).unwrap_err();
    assert_eq!(e.message(), "numeric field overflow");
    assert!(num("0.999").apply_typmod(typmod(2, 2)).is_err());
}
