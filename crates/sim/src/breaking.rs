//! The flags that break the engine of this process on purpose, to test the simulator.

#![expect(clippy::print_stdout, reason = "lists names for people and for tests")]

use clap::Args;
use upsweep::broken::{self, FAULTS, Fault};

#[derive(Args)]
pub struct Breaking {
    /// Break the engine on purpose.
    #[arg(long = "break", value_name = "NAME", value_parser = fault_named)]
    fault: Option<Fault>,
    /// List the names for `--break`, each with what it breaks, and do nothing else.
    #[arg(long)]
    list_faults: bool,
}

impl Breaking {
    /// Applies the requested breakage. Returns whether there is anything else to do.
    pub fn goes_on(&self) -> bool {
        if self.list_faults {
            FAULTS.iter().for_each(|(fault, what)| println!("{fault:?}:{what}"));
        }
        self.fault.into_iter().for_each(broken::choose);
        !self.list_faults
    }
}

fn fault_named(name: &str) -> Result<Fault, String> {
    let names: Vec<String> = FAULTS.iter().map(|(fault, _)| format!("{fault:?}")).collect();
    let position = names.iter().position(|known| known == name);
    position.map(|at| FAULTS[at].0).ok_or_else(|| format!("the names are {}", names.join(", ")))
}
