//! Numbers for people: three figures, and thousands apart.

/// `1,234`, `12.3`, `1.23`, `0.0123`; whole numbers stay whole.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 || value.fract() == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        // Three figures after the zeros.
        _ => (2.0 - size.log10().floor()).clamp(0.0, 9.0) as usize,
    };
    thousands(&format!("{value:.decimals$}"))
}

fn thousands(plain: &str) -> String {
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |d| ("-", d));
    let mut out = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn three_figures() {
        let shown =
            [0.0, 726_112_884.0, 2083.4, 99.94, 1.0456, 0.01234, -1234.0, 1e-12].map(number);
        let expected =
            ["0", "726,112,884", "2,083", "99.9", "1.05", "0.0123", "-1,234", "0.000000000"];
        assert_eq!(shown, expected);
        assert_eq!(number(f64::NAN), "NaN");
    }
}
