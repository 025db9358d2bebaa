//! `kubeon use`.

use std::path::{Path, PathBuf};

use kubeon_api::ClusterName;
use kubeon_engine::choose::choose;
use kubeon_engine::engine::Engine;
use serde::Serialize;

use crate::args::day::UseArgs;
use crate::args::{Format, FormatFlag};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};

/// What was chosen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Chosen {
    cluster: ClusterName,
    /// What `~/.kube/config` points to.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,
    /// The context that kubectl uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    /// The bundle's kubectl.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubectl: Option<PathBuf>,
}

/// Chooses a cluster, for kubeon and for kubectl; without a name it shows the chosen one.
pub(super) async fn run(context: &Context<'_>, args: &UseArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let Some(given) = &args.name else {
        let cluster = engine.name(None)?;
        let text = format!("{cluster}\n");
        let chosen = Chosen { cluster, kubeconfig: None, context: None, kubectl: None };
        return tell(context, &args.format, &chosen, &text);
    };
    let made = choose(&engine, given).await?;
    let link = context.shorten(&made.linked.link);
    if let Some(backup) = &made.linked.backup {
        context.output.say(&format!("what was in {link} is kept in {}", context.shorten(backup)));
    }
    let text = format!("{} is chosen; {link} points to it\n", made.name);
    let chosen = Chosen {
        cluster: made.name,
        kubeconfig: Some(made.kubeconfig),
        context: made.context,
        kubectl: made.kubectl,
    };
    tell(context, &args.format, &chosen, &text)?;
    if let Some(program) = &chosen.kubectl {
        hint(context, program);
    }
    Ok(())
}

fn tell(context: &Context<'_>, format: &FormatFlag, chosen: &Chosen, text: &str) -> Result<(), CliError> {
    if matches!(format.output, Format::Table | Format::Wide) {
        return context.output.result(text);
    }
    let answer = CommandResult::new(chosen, TextTable::new(&[]), vec![chosen.cluster.to_string()])?;
    context.output.result(&answer.text(format.output)?)
}

/// Says how the program gets into reach, where it is not.
fn hint(context: &Context<'_>, program: &Path) {
    let folder = program.parent().unwrap_or(program);
    if context.environment.path.iter().any(|path| path == folder) {
        return;
    }
    context.output.say(&format!("kubectl:  export PATH={}:$PATH", context.shorten(folder)));
}

/// The chosen cluster, for marks in lists; none when it cannot be told.
pub(super) fn current(engine: &Engine<'_>) -> Option<ClusterName> {
    engine.store.current().ok().flatten()
}
