//! `kubeon cloud`: routes of a cloud provider to the pods of a cluster.

use kubeon_api::{CloudRoutes, ClusterName};
use kubeon_engine::cloud_routes;
use serde::Serialize;

use crate::args::Format;
use crate::args::cloud::{CloudCommand, DeleteRouterArgs, ModifyRouterArgs};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable, words};

/// How many routes were changed.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct ChangedRoutes {
    added: usize,
    removed: usize,
    kept: usize,
}

impl From<cloud_routes::RoutesChange> for ChangedRoutes {
    fn from(change: cloud_routes::RoutesChange) -> Self {
        Self { added: change.added, removed: change.removed, kept: change.kept }
    }
}

/// The result of a command about routes.
#[derive(Serialize)]
struct RoutesResult<'a> {
    cluster: &'a str,
    #[serde(flatten)]
    routes: ChangedRoutes,
}

/// Changes or removes routes.
pub(super) async fn run(context: &Context<'_>, command: &CloudCommand) -> Result<(), CliError> {
    match command {
        CloudCommand::ModifyRouter(args) => modify(context, args).await,
        CloudCommand::DeleteRouter(args) => delete(context, args).await,
    }
}

/// Says which routes change together with a cluster, after its plan.
pub(super) fn mention(
    context: &Context<'_>,
    cluster: &ClusterName,
    routes: Option<&CloudRoutes>,
    what: &str,
) {
    if let Some(CloudRoutes { provider, route_tables, .. }) = routes {
        let tables: Vec<String> = route_tables.iter().map(ToString::to_string).collect();
        let tables = tables.join(", ");
        context.output.info(&format!("{cluster}  its routes at {provider} ({tables}) {what}"));
    }
}

async fn modify(context: &Context<'_>, args: &ModifyRouterArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let stored = engine.find(Some(&args.name))?.cloud_routes;
    let requested =
        args.routes(stored.as_ref()).map_err(|refusals| CliError::refusals(&args.name, refusals, &[]))?;
    let access = args.login.access(&args.contact);
    match cloud_routes::modify(&engine, Some(&args.name), requested, &access).await? {
        Some(change) => show(context, &args.name, change.into(), args.format.output),
        None => {
            let flags = "--provider NAME --endpoint REGION --router-table-id ID";
            let name = &args.name;
            context.output.warn(&format!("{name} has no routes: kubeon cloud modify-router {name} {flags}"));
            Ok(())
        }
    }
}

async fn delete(context: &Context<'_>, args: &DeleteRouterArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    match cloud_routes::delete(&engine, Some(&args.name), args.forget).await? {
        Some(change) => show(context, &args.name, change.into(), args.format.output),
        None => {
            context.output.warn(&format!("{} has no routes: nothing to do", args.name));
            Ok(())
        }
    }
}

fn show(context: &Context<'_>, cluster: &str, routes: ChangedRoutes, format: Format) -> Result<(), CliError> {
    let text = match format {
        Format::Table | Format::Wide => format!("{cluster}: {}\n", text(routes)),
        other => {
            let result = RoutesResult { cluster, routes };
            CommandResult::new(&result, TextTable::new(&[]), vec![cluster.to_owned()])?.text(other)?
        }
    };
    context.output.result(&text)
}

/// The changes in words.
pub(super) fn text(routes: ChangedRoutes) -> String {
    let ChangedRoutes { added, removed, kept } = routes;
    format!("{} added, {removed} removed, {kept} unchanged", words::count(added, "route"))
}
