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

/// The same for figures, where room is short: `12,345` is `12.3 k`.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    let Some((least, letter)) = steps.into_iter().find(|(least, _)| size >= *least) else {
        return number(value);
    };
    let unit = if letter == "k" { 1e3 } else { least };
    format!("{} {letter}", number(value / unit))
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
    use super::{number, short};

    #[test]
    fn three_figures() {
        let shown =
            [0.0, 726_112_884.0, 2083.4, 99.94, 1.0456, 0.01234, -1234.0, 1e-12].map(number);
        let expected =
            ["0", "726,112,884", "2,083", "99.9", "1.05", "0.0123", "-1,234", "0.000000000"];
        assert_eq!(shown, expected);
        assert_eq!(number(f64::NAN), "NaN");
    }

    #[test]
    fn short_forms() {
        let shown = [0.0, 9_999.0, 12_345.0, 7_270_800.0, -2e9, 5e12].map(short);
        assert_eq!(shown, ["0", "9,999", "12.3 k", "7.27 M", "-2 G", "5 T"]);
    }
}
