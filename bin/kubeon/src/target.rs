//! The target of `create`, `plan` and `precheck`: from flags, a file, an inventory, or a stored cluster.

use std::io::Read as _;
use std::path::Path;

use kubeon_api::{ClusterName, KubernetesCluster, ReadError, Version, read_yaml};
use kubeon_engine::bundles::version_of;
use kubeon_engine::cluster_target::{ClusterTarget, TargetOptions};
use kubeon_engine::engine::{Engine, ignored_checks};
use kubeon_engine::host_change::LeavingWorkerPolicy;
use kubeon_engine::login_merge::refuse_unused_flags;
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::request_file;
use kubeon_engine::request_inventory::from_inventory;

use crate::args::cluster::ClusterArgs;
use crate::args::node::NodeFlags;
use crate::args::settings::SettingFlags;
use crate::cli_error::CliError;
use crate::request::from_flags;

/// The cluster name for hosts that are checked without a cluster.
const PRECHECK_NAME: &str = "precheck";

/// The calling command. `create` creates a new cluster only from a complete request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskedBy {
    /// `kubeon create`.
    Create,
    /// `kubeon plan`.
    Plan,
    /// `kubeon precheck`, which needs only hosts.
    Precheck,
}

/// The target that the arguments specify.
///
/// # Errors
/// Refuses a request that cannot be planned for any state of the hosts, with all reasons at once.
pub(crate) fn find(
    engine: &Engine<'_>,
    args: &ClusterArgs,
    asked_by: AskedBy,
) -> Result<ClusterTarget, CliError> {
    let supported = engine.supported()?;
    let options = TargetOptions {
        logins: LoginRequests::from(&args.nodes),
        skip_hosts: args.skip_hosts.clone(),
        leaving_workers: LeavingWorkerPolicy::of(args.take_back),
        drain_seconds: args.leave.drain_timeout,
        ignore: ignored_checks(&args.ignore.ignore)?,
        max_unavailable: args.rolling.max_unavailable,
        only_changed_workers: args.only_changed_workers,
        ..TargetOptions::default()
    };
    let flags = options.logins.clone();
    let mut target = requested(engine, args, asked_by, options, &supported)?;
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    name_routes(&mut target, args)?;
    Ok(target)
}

/// Notes the routes of a cloud provider that the flags name.
fn name_routes(target: &mut ClusterTarget, args: &ClusterArgs) -> Result<(), CliError> {
    let name = target.spec.name.as_str();
    let routes = args.cloud.routes().map_err(|refusals| CliError::refusals(name, refusals, &[]))?;
    let Some(routes) = routes else { return Ok(()) };
    if target.state.cloud_routes.as_ref().is_some_and(|stored| *stored != routes) {
        let error = CliError::refused(format!("{name} has routes in other route tables"));
        return Err(error.next_command("change them with", format!("kubeon cloud modify-router {name} …")));
    }
    target.state.cloud_routes = Some(routes);
    Ok(())
}

fn requested(
    engine: &Engine<'_>,
    args: &ClusterArgs,
    asked_by: AskedBy,
    options: TargetOptions,
    supported: &[Version],
) -> Result<ClusterTarget, CliError> {
    let newest = supported.iter().max().map(ToString::to_string).unwrap_or_default();
    let request = match (&args.file, &args.name, &args.version) {
        (None, name, None) if asked_by == AskedBy::Precheck && args.nodes.names_hosts() => {
            from_flags(args, name.as_deref().unwrap_or(PRECHECK_NAME), &newest, supported)?
        }
        _ if args.inventory.inventory.is_some() => {
            let (name, files) = (only_the_inventory(args)?, args.inventory.files());
            from_inventory(engine, &name, &files, &args.limit.limit, &options.logins, supported)?
        }
        (Some(_), ..) => {
            only_the_file(args)?;
            request_file::from_file(
                &read(args.file.as_deref().unwrap_or(Path::new("-")))?,
                &options.logins,
                supported,
            )?
        }
        (None, Some(name), Some(version)) => from_flags(args, name, &version_of(version)?, supported)?,
        (None, name, _) => return stored(engine, args, name.as_deref(), asked_by, options),
    };
    Ok(ClusterTarget::requested(engine, request, options)?)
}

fn stored(
    engine: &Engine<'_>,
    args: &ClusterArgs,
    name: Option<&str>,
    asked_by: AskedBy,
    options: TargetOptions,
) -> Result<ClusterTarget, CliError> {
    let has_flags = args.nodes.names_hosts()
        || args.settings != SettingFlags::default()
        || !args.missing.refusals.is_empty();
    let given = usize::from(name.is_some());
    let known = match name {
        Some(text) => text.parse().is_ok_and(|name| engine.store.exists(&name)),
        None => asked_by != AskedBy::Create,
    };
    if has_flags || (asked_by == AskedBy::Create && !known) {
        let mut error = CliError::refused(format!("accepts 2 arg(s), received {given}"));
        if let Some(name) = name {
            error = error.row("missing", format!("the version: kubeon create {name} VERSION -m ADDRESS"));
            if !known {
                error =
                    error.row("state", format!("Cluster[{name}] not exist, so there is nothing to continue"));
            }
        } else {
            error =
                error.row("missing", "name and version: kubeon create NAME VERSION -m ADDRESS, or -f FILE");
        }
        return Err(error.next_command("see", "kubeon create --help"));
    }
    let state = engine.find(name)?;
    no_lists(state.name.as_str(), &args.nodes)?;
    Ok(ClusterTarget::stored(engine, state, options)?)
}

fn only_the_file(args: &ClusterArgs) -> Result<(), CliError> {
    let settings = args.settings != SettingFlags::default() || !args.missing.refusals.is_empty();
    if args.name.is_none() && !args.nodes.names_hosts() && !settings {
        let file = args.file.as_deref().unwrap_or(Path::new("-"));
        return no_lists(&file.display().to_string(), &args.nodes);
    }
    let error = CliError::refused("-f declares the whole cluster: omit its name, its hosts and its settings");
    Err(error.row("allowed", "--default-*, --accept-new, --known-hosts, --without"))
}

/// Refuses flags that list one value per host if -m and -w name no host.
///
/// # Errors
/// Names every such flag, and the flag for all hosts.
pub(crate) fn no_lists(cluster: &str, nodes: &NodeFlags) -> Result<(), CliError> {
    let mut refusals = Vec::new();
    nodes.hosts(&mut refusals);
    if refusals.is_empty() { Ok(()) } else { Err(CliError::refusals(cluster, refusals, &[])) }
}

fn only_the_inventory(args: &ClusterArgs) -> Result<ClusterName, CliError> {
    let settings = args.settings != SettingFlags::default() || !args.missing.refusals.is_empty();
    if args.file.is_some() || args.version.is_some() || args.nodes.names_hosts() || settings {
        let error = CliError::refused(
            "--inventory and --vars declare the whole cluster: omit its version, hosts and settings",
        );
        return Err(
            error.row("allowed", "NAME, --limit, --default-*, --accept-new, --known-hosts, --without")
        );
    }
    let Some(name) = &args.name else {
        let error = CliError::refused("an inventory does not contain the name of the cluster");
        return Err(
            error.next_command("try", "kubeon create NAME --inventory hosts.yml --vars group_vars.yml")
        );
    };
    no_lists(name, &args.nodes)?;
    name.parse().map_err(|error: kubeon_api::NameError| CliError::refused(error.to_string()))
}

/// The cluster that a file declares; `-` is standard input.
///
/// # Errors
/// When the file cannot be read, or is no KubernetesCluster.
pub(crate) fn read(path: &Path) -> Result<KubernetesCluster, CliError> {
    let shown = path.display().to_string();
    let text = if shown == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| CliError::refused(format!("cannot read {shown}: {error}")))?;
    read_yaml(&text).map_err(|error| match error {
        ReadError::Mistakes(mistakes) => {
            let plural = if mistakes.len() == 1 { "" } else { "s" };
            let mut error = CliError::refused(format!("{shown} has {} mistake{plural}", mistakes.len()));
            error.rows = mistakes
                .into_iter()
                .map(|mistake| (format!("line {}: {}", mistake.line, mistake.field), mistake.reason))
                .collect();
            error
        }
        other => CliError::refused(format!("{shown}: {other}")),
    })
}
