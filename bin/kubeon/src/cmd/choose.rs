//! `kubeon use`.

use std::path::{Path, PathBuf};

use kubeon_api::ClusterName;
use kubeon_engine::choose::choose;
use serde::Serialize;

use crate::args::day::UseArgs;
use crate::args::{Format, FormatFlag};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};

/// The result of `kubeon use`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Chosen {
    cluster: ClusterName,
    /// The kubeconfig that `~/.kube/config` points to.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,
    /// The context that kubectl uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    /// The kubectl of the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubectl: Option<PathBuf>,
}

/// Chooses the default cluster of kubeon and kubectl. Without a name, prints the chosen cluster.
pub(super) async fn run(context: &Context<'_>, args: &UseArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let Some(given) = &args.name else {
        let cluster = engine.name(None)?;
        let text = format!("{cluster}\n");
        let chosen = Chosen { cluster, kubeconfig: None, context: None, kubectl: None };
        return print(context, &args.format, &chosen, &text);
    };
    let choice = choose(&engine, given).await?;
    let link = context.shorten(&choice.linked.link);
    if let Some(backup) = &choice.linked.backup {
        context.output.info(&format!("the previous {link} was moved to {}", context.shorten(backup)));
    }
    let text = format!("{} is chosen; {link} points to it\n", choice.name);
    let chosen = Chosen {
        cluster: choice.name,
        kubeconfig: Some(choice.kubeconfig),
        context: choice.context,
        kubectl: choice.kubectl,
    };
    print(context, &args.format, &chosen, &text)?;
    if let Some(program) = &chosen.kubectl {
        print_path_hint(context, program);
    }
    Ok(())
}

fn print(context: &Context<'_>, format: &FormatFlag, chosen: &Chosen, text: &str) -> Result<(), CliError> {
    if matches!(format.output, Format::Table | Format::Wide) {
        return context.output.result(text);
    }
    let answer = CommandResult::new(chosen, TextTable::new(&[]), vec![chosen.cluster.to_string()])?;
    context.output.result(&answer.text(format.output)?)
}

/// Prints how to add the folder of the program to `PATH`, if it is missing there.
fn print_path_hint(context: &Context<'_>, program: &Path) {
    let folder = program.parent().unwrap_or(program);
    if context.environment.path.iter().any(|path| path == folder) {
        return;
    }
    context.output.info(&format!("kubectl:  export PATH={}:$PATH", context.shorten(folder)));
}
