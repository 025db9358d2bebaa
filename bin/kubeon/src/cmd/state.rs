//! `kubeon state`.

use std::io::{self, IsTerminal as _};

use kubeon_store::Imported;

use crate::args::state::{StateArgs, StateCommand};
use crate::cli_error::CliError;
use crate::context::Context;

/// Writes a state out, or takes one in.
pub(super) fn run(context: &Context<'_>, args: &StateArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    match &args.command {
        StateCommand::Export(args) => {
            let name = engine.name(Some(&args.name))?;
            let out = io::stdout();
            if out.is_terminal() {
                let stop = CliError::refused("a state holds keys and is no text: not shown on a terminal");
                return Err(stop.row("instead", format!("kubeon state export {name} >{name}.tar.zst")));
            }
            Ok(engine.store.export(&name, out.lock())?)
        }
        StateCommand::Import(args) => {
            let name = engine.name(Some(&args.name))?;
            let lock = engine.store.lock(&name, "kubeon state import")?;
            let imported = engine.store.import(&lock, io::stdin().lock())?;
            context.output.say(&match imported {
                Imported::Taken => format!("the state of {name} is in place"),
                Imported::Equal => format!("the state of {name} was here already"),
            });
            Ok(())
        }
    }
}
