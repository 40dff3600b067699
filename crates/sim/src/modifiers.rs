//! The application's modifiers: state-dependent, refusing, panicking.

use std::sync::Arc;

use upsweep::layers::engine::modifier::{Modifier, Outcome, Refusal, ValueKind, ValueRef};

use crate::semantics::{self, Op, Value};

/// The message prefix of an expected panic: the panic hook ignores it.
pub const EXPECTED_PANIC: &str = "this modifier panics on purpose";

/// Repetitions in a long reason.
const LONG_REASON_TIMES: usize = 20_000;

/// A modifier of the application. Its function is defined in [`semantics`], because there is no
/// second definition to compare it with.
struct Application(Op, &'static str);

/// The application's modifiers, with the corresponding operations of the model.
#[must_use]
pub fn application() -> Vec<(Op, Arc<dyn Modifier>)> {
    let listed = [(Op::Stir, "sim.stir"), (Op::Fussy, "sim.fussy"), (Op::Bomb, "sim.bomb")];
    let shared = |(op, name)| -> (Op, Arc<dyn Modifier>) { (op, Arc::new(Application(op, name))) };
    listed.into_iter().map(shared).collect()
}

impl Modifier for Application {
    fn name(&self) -> &'static str {
        self.1
    }

    fn version(&self) -> u16 {
        3
    }

    fn apply(
        &self,
        _key: &[u8],
        current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        let value =
            current.map(|value| Value { kind: value.kind as u8, bytes: value.bytes.to_vec() });
        if self.0 == Op::Bomb && semantics::disagree(value.as_ref(), operand) {
            std::panic::panic_any(EXPECTED_PANIC);
        }
        match semantics::apply(self.0, value.as_ref(), operand) {
            Ok(Some(value)) => {
                let kind = ValueKind::from_number(value.kind);
                Ok(Outcome::Put(kind.unwrap_or(ValueKind::Bytes), value.bytes))
            }
            Ok(None) => Ok(Outcome::Delete),
            Err(semantics::Refused) => Err(Refusal(reason(operand))),
        }
    }
}

/// The reason for a refusal by the fussy modifier: sometimes excessively long.
fn reason(operand: &[u8]) -> String {
    let times = if operand.len().is_multiple_of(5) { LONG_REASON_TIMES } else { 1 };
    "fussy ".repeat(times)
}
