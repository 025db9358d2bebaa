//! `kubeon module`: programs of users on nodes, and the objects of a program of the bundle.

use std::time::Duration;

use kubeon_engine::cluster_nodes::{ClusterNodes, MAX_CONCURRENT};
use kubeon_engine::cluster_target::{ClusterTarget, TargetOptions};
use kubeon_engine::error::EngineError;
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::node_module::{ModuleName, NodeModule};
use kubeon_engine::preview::preview;
use kubeon_engine::ready_master::ReadyMaster;
use kubeon_link_host::Copy;
use kubeon_plan::desired_content;
use kubeon_wire::Op;
use serde_json::{Value, json};

use super::copy::not_copied;
use super::exec::{NodeLine, run_on};
use super::view_config::of_objects;
use crate::args::module::{InnerArgs, ModuleArgs, ModuleCommand};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::display::spinner::Spinner;

/// Installs, removes or applies a module.
pub(super) async fn run(context: &Context<'_>, command: &ModuleCommand) -> Result<(), CliError> {
    match command {
        ModuleCommand::Install(args) => install(context, args).await,
        ModuleCommand::Uninstall(args) => uninstall(context, args).await,
        ModuleCommand::Inner(args) => apply_objects(context, args).await,
    }
}

async fn install(context: &Context<'_>, args: &ModuleArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let module = NodeModule::open(&engine.environment, &args.unit)?;
    let nodes = ClusterNodes::selected(&engine, &args.selector, &args.login.access(&args.contact)).await?;
    let unit = if module.has_unit { format!(", then enable {}.service", module.name) } else { String::new() };
    if args.dry_run {
        return show(context, &nodes, &format!("run install.sh of {}{unit}", module.archive.display()));
    }
    let copy = Copy { source: module.archive.clone(), destination: module.name.archive_on_node() };
    let copied = nodes.copy(&copy, &Spinner::new(context.output)).await;
    let failed: Vec<_> =
        copied.into_iter().filter_map(|(member, result)| Some((member.name, result.err()?))).collect();
    if !failed.is_empty() {
        return Err(not_copied(&copy.source, failed, &nodes));
    }
    run_line(context, args, &nodes, &module.name.install(nodes.version)).await
}

async fn uninstall(context: &Context<'_>, args: &ModuleArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let name = ModuleName::parse(args.unit.trim_end_matches(".tar"))?;
    let nodes = ClusterNodes::selected(&engine, &args.selector, &args.login.access(&args.contact)).await?;
    if args.dry_run {
        return show(context, &nodes, &format!("run uninstall.sh of {name} and remove its files"));
    }
    run_line(context, args, &nodes, &name.uninstall()).await
}

async fn run_line(
    context: &Context<'_>,
    args: &ModuleArgs,
    nodes: &ClusterNodes,
    line: &str,
) -> Result<(), CliError> {
    let limit = Duration::from_secs(args.timeout.max(1));
    let format = args.format.output;
    let request = NodeLine { command: "module", line, limit, at_once: MAX_CONCURRENT, format };
    run_on(context, nodes, &request).await
}

fn show(context: &Context<'_>, nodes: &ClusterNodes, what: &str) -> Result<(), CliError> {
    let lines = nodes.members.iter().map(|member| format!("{}  {what}\n", member.name));
    context.output.result(&lines.collect::<String>())?;
    context.output.info("Nothing was written.");
    Ok(())
}

/// Applies the objects of a program that kubeon declares.
async fn apply_objects(context: &Context<'_>, args: &InnerArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    let options = TargetOptions { logins: LoginRequests::from(&args.login), ..TargetOptions::default() };
    let target = ClusterTarget::stored(&engine, state.clone(), options)?;
    let made = preview(&engine, &target, &args.contact.options()).await?;
    let all = desired_content(&made.intent, &made.snapshot)
        .map_err(|error| EngineError::failed(error.to_string()))?;
    let objects: Vec<Value> = all
        .iter()
        .filter_map(|(_, _, op)| if let Op::Objects { objects } = op { Some(objects) } else { None })
        .flat_map(|objects| of_objects(objects, &args.program).map(|object| object.body.clone()))
        .collect();
    if objects.is_empty() {
        context.output.warn(&format!("not found or not need this module {}", args.program));
        return Ok(());
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let master = ReadyMaster::find(&engine, &state, &args.login.access(&args.contact)).await?;
    context.output.result(&master.apply(list.to_string(), args.dry_run).await?)
}
