//! What the flags of `kubeon upgrade` ask for.

use kubeon_engine::cluster_nodes::NodeAccess;
use kubeon_engine::cluster_target::TargetOptions;
use kubeon_engine::engine::{StoredCluster, ignored_checks};
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::upgrade_checks::UPGRADE_CHECKS;
use kubeon_plan::Intent;

use crate::args::upgrade::UpgradeArgs;
use crate::cli_error::CliError;

/// The options of each change.
///
/// # Errors
/// Refuses an unknown check, and one that cannot be ignored.
pub(super) fn options(args: &UpgradeArgs) -> Result<TargetOptions, CliError> {
    let of_hosts = |check: &&String| !UPGRADE_CHECKS.contains(&check.as_str());
    let ignore = args.change.ignore.ignore.iter().filter(of_hosts).cloned().collect::<Vec<_>>();
    Ok(TargetOptions {
        logins: LoginRequests::from(&args.change.login),
        drain_seconds: if args.wait_time == 0 { Intent::DRAIN_SECONDS } else { args.wait_time },
        skip_evict: args.skip_evict,
        unseen_versions: args.later_versions,
        ignore: ignored_checks(&ignore)?,
        max_unavailable: args.change.rolling.max_unavailable,
        ..TargetOptions::default()
    })
}

/// Whether the upgrade begins now.
pub(super) fn begins(state: &StoredCluster) -> bool {
    state.version == Some(state.spec.version) && state.trial.is_none()
}

/// How to reach a master.
pub(super) fn access(args: &UpgradeArgs) -> NodeAccess {
    let access = args.change.login.access(&args.change.contact);
    NodeAccess { inventory: args.inventory.files(), ..access }
}

/// What a disruption budget that allows no eviction means.
pub(super) fn blocking_text(budget: &str, seconds: u32) -> String {
    format!("PodDisruptionBudget {budget} allows no disruption now: a drain waits for it, up to {seconds} s")
}
