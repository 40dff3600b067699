//! Lines for arrays: their operations and operands.
//!
//! Cells are numbers of one type, so the modifiers are those of this type, and a number that no
//! cell can hold is refused before it is logged.

use upsweep::layers::engine::registry::ModifierId;
use upsweep::layers::structures::modifiers as builtin;
use upsweep::{CellKind, ValueKind};

use super::lines::Operand;
use crate::text;

/// The modifier of an operation on cells, and the kind of its operand; `None` if it has none.
pub(super) fn operation(
    name: &[u8],
    cells: CellKind,
) -> Result<Option<(ModifierId, Operand)>, String> {
    let of_type = |[unsigned, signed, float]: [ModifierId; 3]| match cells.value_kind() {
        ValueKind::I64 => signed,
        ValueKind::F64 => float,
        ValueKind::U64 | ValueKind::Bytes => unsigned,
    };
    Ok(Some(match name {
        b"add" => {
            let modifier = of_type([builtin::ADD_U64, builtin::ADD_I64, builtin::ADD_F64]);
            (modifier, Operand::Amount(cells))
        }
        b"max" => {
            let modifier = of_type([builtin::MAX_U64, builtin::MAX_I64, builtin::MAX_F64]);
            (modifier, Operand::Cell(cells))
        }
        b"min" => {
            let modifier = of_type([builtin::MIN_U64, builtin::MIN_I64, builtin::MIN_F64]);
            (modifier, Operand::Cell(cells))
        }
        b"put" => (builtin::PUT, Operand::CellValue(cells)),
        b"delete" => (builtin::DELETE, Operand::None),
        b"append" => {
            let reason = "append is for texts, and the cells of an array are numbers";
            return Err(format!("{reason}, for put, delete, add, max and min"));
        }
        _ => return Ok(None),
    }))
}

/// A number that a cell can hold, as modifiers take it.
pub(super) fn number(given: &[u8], cells: CellKind) -> Result<[u8; 8], String> {
    let digits = std::str::from_utf8(given).unwrap_or_default();
    let found = match cells {
        CellKind::I64 => digits.parse().ok().map(i64::to_le_bytes),
        CellKind::F64 => {
            text::float(digits).filter(|number| !number.is_nan()).map(f64::to_le_bytes)
        }
        _ => digits.parse().ok().filter(|number| *number <= max(cells)).map(u64::to_le_bytes),
    };
    found.ok_or_else(|| no_number(given, &range(cells, "0")))
}

/// A number that can be added to a cell, as modifiers take it. Sums of unsigned integers wrap
/// around at 2^64, so adding 2^64 - n takes n away.
pub(super) fn amount(given: &[u8], cells: CellKind) -> Result<[u8; 8], String> {
    let is_unsigned = !matches!(cells, CellKind::I64 | CellKind::F64);
    let Some(digits) = given.strip_prefix(b"-").filter(|_| is_unsigned) else {
        let least = format!("-{}", max(cells));
        return number(given, cells).map_err(|_| no_number(given, &range(cells, &least)));
    };
    let number = number(digits, cells).map_err(|_| {
        let least = format!("-{}", max(cells));
        no_number(given, &range(cells, &least))
    })?;
    Ok(u64::from_le_bytes(number).wrapping_neg().to_le_bytes())
}

fn no_number(given: &[u8], range: &str) -> String {
    format!("{} is no number{range}", text::quote(given))
}

/// The valid range of numbers, for a message; `least` applies to unsigned ones.
fn range(cells: CellKind, least: &str) -> String {
    match cells {
        CellKind::I64 => " from -2^63 to 2^63-1".to_owned(),
        CellKind::F64 => " from -1.79e308 to 1.79e308, nor inf or -inf".to_owned(),
        _ => format!(" from {least} to {}, as cells of {cells} take", max(cells)),
    }
}

/// The largest unsigned integer of a cell.
fn max(cells: CellKind) -> u64 {
    let bits = 8 * cells.cell_bytes().clamp(1, 8) as u32;
    u64::MAX >> (u64::BITS - bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_cells() {
        let unsigned = |text: &str, cells| number(text.as_bytes(), cells).map(u64::from_le_bytes);
        for (cells, last, beyond) in [
            (CellKind::U8, "255", "256"),
            (CellKind::U16, "65535", "65536"),
            (CellKind::U32, "4294967295", "4294967296"),
            (CellKind::U64, "18446744073709551615", "18446744073709551616"),
        ] {
            assert_eq!(unsigned(last, cells), Ok(last.parse().expect("a number")));
            let reason = format!("\"{beyond}\" is no number from 0 to {last}, as cells of {cells}");
            assert!(unsigned(beyond, cells).is_err_and(|found| found.starts_with(&reason)));
            assert!(unsigned("-1", cells).is_err() && unsigned("", cells).is_err());
            assert_eq!(
                amount(b"-1", cells).map(u64::from_le_bytes),
                Ok(u64::MAX),
                "takes one away, for sums wrap around"
            );
            let reason = format!("\"-{beyond}\" is no number from -{last} to {last}, as cells");
            let found = amount(format!("-{beyond}").as_bytes(), cells);
            assert!(found.is_err_and(|found| found.starts_with(&reason)));
        }
        assert_eq!(number(b"-5", CellKind::I64), Ok((-5i64).to_le_bytes()));
        assert_eq!(amount(b"-5", CellKind::I64), Ok((-5i64).to_le_bytes()));
        assert_eq!(amount(b"-0.5", CellKind::F64), Ok((-0.5f64).to_le_bytes()));
        for given in ["NaN", "1e309", "-1e309", ""] {
            let reason = format!("\"{given}\" is no number from -1.79e308 to 1.79e308, nor inf");
            let found = number(given.as_bytes(), CellKind::F64);
            assert!(found.is_err_and(|found| found.starts_with(&reason)));
        }
        assert_eq!(number(b"-inf", CellKind::F64), Ok(f64::NEG_INFINITY.to_le_bytes()));
        assert!(amount(b"--1", CellKind::U8).is_err());
    }
}
