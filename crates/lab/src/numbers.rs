//! Numbers for people.

use indicatif::HumanFloatCount;

use crate::outcome::Cell;

/// A number with four digits that say something, and thousands apart.
pub(crate) fn short(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    let before_point = number.abs().log10().floor();
    let after_point = (3.0 - before_point).clamp(0.0, 12.0) as usize;
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{:.after_point$}", HumanFloatCount(number.abs()))
}

/// A cell.
pub(crate) fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Number(number) => short(*number),
        Cell::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_and_groups() {
        let numbers = [0.0, 0.0333, 14.149, 119.8, 404_228.0, 1_234_567.8, -1234.6, 9999.6];
        let found = numbers.map(short);
        let expected =
            ["0", "0.0333", "14.15", "119.8", "404,228", "1,234,568", "-1,235", "10,000"];
        assert_eq!(found, expected);
        assert_eq!(short(f64::NAN), "NaN");
    }
}
