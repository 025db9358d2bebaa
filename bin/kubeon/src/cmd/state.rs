//! `kubeon state`.

use std::io::{self, IsTerminal as _};

use kubeon_store::Imported;

use crate::args::state::{StateArgs, StateCommand};
use crate::cli_error::CliError;
use crate::context::Context;

/// Exports or imports a state.
pub(super) fn run(context: &Context<'_>, args: &StateArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    match &args.command {
        StateCommand::Export(args) => {
            let name = engine.name(Some(&args.name))?;
            let out = io::stdout();
            if out.is_terminal() {
                let error = CliError::refused(
                    "the state is binary and contains keys: it is not printed to a terminal",
                );
                return Err(error.row("instead", format!("kubeon state export {name} >{name}.tar.zst")));
            }
            Ok(engine.store.export(&name, out.lock())?)
        }
        StateCommand::Import(args) => {
            let name = engine.name(Some(&args.name))?;
            let lock = engine.store.lock(&name, "kubeon state import")?;
            let imported = engine.store.import(&lock, io::stdin().lock())?;
            context.output.info(&match imported {
                Imported::Taken => format!("the state of {name} is imported"),
                Imported::Equal => format!("the state of {name} is already up to date"),
            });
            Ok(())
        }
    }
}
