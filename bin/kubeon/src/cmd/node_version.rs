//! `kubeon rollback --nodes`, and `kubeon upgrade` to the version that the control plane has: only the nodes change.

use kubeon_api::Version;
use kubeon_engine::cluster_target::{ClusterTarget, TargetOptions};
use kubeon_engine::engine::{Engine, StoredCluster};
use kubeon_engine::node_version;
use kubeon_engine::request_inventory::merge_inventory_logins;
use kubeon_plan::Intent;
use kubeon_store::Status;

use crate::args::upgrade::{NodesVersion, RollbackArgs, UpgradeArgs};
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::plan;
use crate::cmd::upgrade_request::options;
use crate::context::Context;

/// Brings the nodes of a cluster back to an older version. `asked` is the value of the flag.
pub(super) async fn back(
    context: &Context<'_>,
    args: &RollbackArgs,
    asked: NodesVersion,
) -> Result<(), CliError> {
    let (engine, change, name) = (context.engine()?, &args.change, &args.name);
    let state = engine.find(Some(name))?;
    let (version, now) = (wanted(&state, asked)?, state.spec.version);
    if state.status == Status::Running && state.nodes_at == Some(version) {
        return context.output.result(&format!("{name}: nothing to do, its nodes have {version}\n"));
    }
    let state = node_version::back(&engine, state, version)?;
    context
        .output
        .info(&format!("{name}: the nodes go back to {version}; etcd and the control plane keep {now}"));
    let options = TargetOptions {
        skip_evict: args.skip_evict,
        drain_seconds: args.wait_time.unwrap_or(Intent::DRAIN_SECONDS),
        ..change.target_options()?
    };
    let target = ClusterTarget::stored(&engine, state, options)?;
    let flags = ChangeFlags::of("kubeon rollback", change);
    if change.dry_run {
        let plain = || format!("kubeon rollback {name} --nodes {version}");
        let command = context.typed_as("rollback", "rollback").unwrap_or_else(plain);
        return plan::create(context, &engine, target, &flags.host_keys, command, flags.format).await;
    }
    make(context, &engine, target, &flags).await
}

/// The version to which the nodes go back.
fn wanted(state: &StoredCluster, asked: NodesVersion) -> Result<Version, CliError> {
    if let NodesVersion::Named(version) = asked {
        return Ok(version);
    }
    // A change that was interrupted goes on.
    let open = state.nodes_at.filter(|_| state.status == Status::ChangingNodes);
    open.or_else(|| node_version::version_before(state)).ok_or_else(|| {
        let (name, now) = (&state.name, state.spec.version);
        CliError::refused(format!("the version that {name} had before {now} is not known"))
            .row("name it", format!("kubeon rollback {name} --nodes VERSION"))
    })
}

/// Whether the cluster has the version, except maybe for its nodes.
pub(super) fn has_control_plane_of(state: &StoredCluster, version: Version) -> bool {
    let settled = matches!(state.status, Status::Running | Status::ChangingNodes) && state.trial.is_none();
    settled && state.version == Some(version) && state.spec.version == version
}

/// Brings the nodes of a cluster to the version of its control plane.
pub(super) async fn forward(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: StoredCluster,
    args: &UpgradeArgs,
) -> Result<(), CliError> {
    let (name, version) = (&args.name, state.spec.version);
    if state.status == Status::Running && state.nodes_at.is_none() {
        return context.output.result(&format!("{name}: nothing to do, it has {version}\n"));
    }
    let options = options(args)?;
    let logins = options.logins.clone();
    let mut target = ClusterTarget::stored(engine, node_version::forward(state)?, options)?;
    let inventory = args.inventory.files();
    target.logins = merge_inventory_logins(&inventory, &logins, &target.state, target.logins)?;
    context.output.info(&format!("{name}: the nodes come to {version}, which the control plane has"));
    let flags =
        ChangeFlags { approved: args.approved.read()?, ..ChangeFlags::of("kubeon upgrade", &args.change) };
    if args.change.dry_run {
        let plain = || format!("kubeon upgrade {name} {version}");
        let command = context.typed_as("upgrade", "upgrade").unwrap_or_else(plain);
        let command = args.file.applied_by(command);
        let plan = plan::shown(context, engine, target, &flags.host_keys, command, flags.format).await?;
        return Ok(args.file.write(&plan)?);
    }
    make(context, engine, target, &flags).await
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;

    use super::*;

    #[test]
    fn the_version_before_is_the_default_and_an_open_change_goes_on() {
        let spec = cluster(&["10.0.0.1"], &[]);
        let mut state = StoredCluster::new(spec.name.clone(), spec);
        let unknown = wanted(&state, NodesVersion::Before).unwrap_err();
        assert!(unknown.rows.iter().any(|(_, text)| text == "kubeon rollback demo --nodes VERSION"));
        state.version_before = "v1.35.7".parse().ok();
        assert_eq!(wanted(&state, NodesVersion::Before).unwrap().to_string(), "v1.35.7");
        let named = |text: &str| text.parse::<NodesVersion>();
        assert_eq!(wanted(&state, named("v1.34.9").unwrap()).unwrap().to_string(), "v1.34.9");
        assert!(named("1.2").is_err() && named("demo").unwrap_err().contains("before --nodes"));
        (state.nodes_at, state.status) = ("v1.34.9".parse().ok(), Status::ChangingNodes);
        assert_eq!(wanted(&state, NodesVersion::Before).unwrap().to_string(), "v1.34.9");
    }

    #[test]
    fn the_version_of_the_control_plane_concerns_the_nodes_only_while_no_upgrade_is_open() {
        let spec = cluster(&["10.0.0.1"], &[]);
        let now = spec.version;
        let mut state = StoredCluster::new(spec.name.clone(), spec);
        (state.version, state.status) = (Some(now), Status::ChangingNodes);
        assert!(has_control_plane_of(&state, now));
        state.status = Status::Upgrading;
        assert!(!has_control_plane_of(&state, now), "an upgrade is being aborted");
    }
}
