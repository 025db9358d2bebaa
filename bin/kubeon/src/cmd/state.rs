//! `kubeon state`.

use std::io::{self, IsTerminal as _};

use kubeon_store::Imported;

use super::Context;
use crate::args::state::{StateArgs, StateCommand};
use crate::cli_error::CliError;
use crate::engine::{self, Engine};

/// Writes a state out, or takes one in.
pub fn run(context: &Context<'_>, args: &StateArgs) -> Result<(), CliError> {
    let engine = Engine::new(context)?;
    match &args.command {
        StateCommand::Export(args) => {
            let name = engine.name(Some(&args.name))?;
            let out = io::stdout();
            if out.is_terminal() {
                let stop = CliError::refused("a state holds keys and is no text: not shown on a terminal");
                return Err(stop.row("instead", format!("kubeon state export {name} >{name}.tar.zst")));
            }
            engine.store.export(&name, out.lock()).map_err(engine::stop)
        }
        StateCommand::Import(args) => {
            let name = engine.name(Some(&args.name))?;
            let lock = engine.store.lock(&name, "kubeon state import").map_err(engine::stop)?;
            let imported = engine.store.import(&lock, io::stdin().lock()).map_err(engine::stop)?;
            context.talk.say(&match imported {
                Imported::Taken => format!("the state of {name} is in place"),
                Imported::Equal => format!("the state of {name} was here already"),
            });
            Ok(())
        }
    }
}
