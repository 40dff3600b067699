//! Numbers for people.

/// A number of bytes.
pub(crate) fn size(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = bytes;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{} {}", short(scaled), units[unit])
}

/// A number with three digits that say something, and thousands apart.
pub(crate) fn short(number: f64) -> String {
    let digits = match number.abs() {
        size if size == 0.0 || size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let rest = rest.map_or_else(String::new, |rest| format!(".{rest}"));
    format!("{sign}{grouped}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_groups() {
        let found = [0.0, 0.01234, 1.5, 12.34, 123.4, 1_234_567.0, -1234.0].map(short);
        assert_eq!(found, ["0", "0.012", "1.50", "12.3", "123", "1,234,567", "-1,234"]);
        assert_eq!(
            [100.0, 2048.0, 1.5 * 1024.0 * 1024.0].map(size),
            ["100 B", "2.00 KiB", "1.50 MiB"]
        );
    }
}
