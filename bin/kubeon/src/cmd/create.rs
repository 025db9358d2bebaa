//! `kubeon create`.

use kubeon_engine::change::store_request;
use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::engine::{Engine, StoredCluster};
use kubeon_engine::pre_apply_hook::PreApplyWait;
use serde::Serialize;

use crate::args::Format;
use crate::args::cluster::CreateArgs;
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::only_parts::put_parts;
use crate::cmd::plan;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};
use crate::target::{self, AskedBy};

/// Creates a cluster, or continues an incomplete creation or change.
pub(super) async fn run(context: &Context<'_>, args: &CreateArgs) -> Result<(), CliError> {
    if args.pre_apply_wait.wait() == PreApplyWait::Line
        && args.cluster.file.as_ref().is_some_and(|file| file.as_os_str() == "-")
    {
        return Err(CliError::refused("--hold and -f - both read standard input: name a file"));
    }
    let engine = context.engine()?;
    let mut target = target::find(&engine, &args.cluster, AskedBy::Create)?;
    target.only_parts = args.only_parts.only_parts;
    let host_keys = args.cluster.contact.options();
    if args.dry_run {
        let command = plan::create_command(context, &target, &args.cluster, "create");
        return plan::create(context, &engine, target, &host_keys, command, args.format.output).await;
    }
    let flags = ChangeFlags {
        command: "kubeon create",
        host_keys,
        pre_apply_wait: args.pre_apply_wait.wait(),
        yes: args.yes,
        approved: args.approved.read()?,
        format: args.format.output,
    };
    if args.only_create {
        return only_create(context, &engine, target, &flags);
    }
    if target.only_parts {
        return put_parts(context, &engine, target, &flags).await;
    }
    let name = target.spec.name.clone();
    make(context, &engine, target, &flags).await?;
    if let Some(wanted) = engine.load(&name)?.upgrading_to {
        context.output.info(&format!("{name}: the upgrade to {wanted} goes on with kubeon resume {name}"));
    }
    Ok(())
}

/// Stores the request and contacts no host.
fn only_create(
    context: &Context<'_>,
    engine: &Engine<'_>,
    target: ClusterTarget,
    flags: &ChangeFlags,
) -> Result<(), CliError> {
    let state = store_request(engine, target, &flags.options())?;
    let (name, output) = (&state.name, context.output);
    match flags.format {
        Format::Table | Format::Wide => {
            output.result(&format!("{name} is stored; no host was contacted\n"))?;
        }
        other => {
            let answer =
                CommandResult::new(&StoredRequest::of(&state), TextTable::new(&[]), vec![name.to_string()])?;
            output.result(&answer.text(other)?)?;
        }
    }
    output.info(&format!("next: kubeon plan {name} · kubeon create {name}"));
    Ok(())
}

/// The result of storing a request, with the fields of a change.
#[derive(Serialize)]
struct StoredRequest {
    cluster: String,
    version: String,
    /// Always false: no host was contacted.
    changed: bool,
    of: usize,
    /// Workers to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leaving: Vec<String>,
}

impl StoredRequest {
    fn of(state: &StoredCluster) -> Self {
        // A worker that was taken back is in both lists until it has joined again.
        let leaving = state
            .leaving
            .iter()
            .filter(|(address, _)| !state.spec.workers.iter().any(|host| host.address == **address))
            .map(|(address, name)| name.as_ref().map_or_else(|| address.to_string(), ToString::to_string));
        Self {
            cluster: state.name.to_string(),
            version: state.spec.version.to_string(),
            changed: false,
            of: state.spec.hosts().count(),
            leaving: leaving.collect(),
        }
    }
}
