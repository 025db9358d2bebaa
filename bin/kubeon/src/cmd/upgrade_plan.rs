//! `kubeon upgrade --dry-run`: the whole way of an upgrade.

use std::fmt::Write as _;

use kubeon_api::Version;
use kubeon_engine::engine::{Engine, StoredCluster};
use kubeon_engine::forecast::{PlannedHop, UpgradeForecast, forecast};
use kubeon_engine::ready_master::ReadyMaster;
use kubeon_engine::snapshot_folder;
use kubeon_engine::snapshot_place::SnapshotPlace;
use kubeon_engine::upgrade::{UpgradeObstacles, obstacles};
use kubeon_engine::upgrade_checks::REMOVED_APIS;
use kubeon_plan::Plan;
use serde::Serialize;

use crate::args::Format;
use crate::args::upgrade::UpgradeArgs;
use crate::cli_error::CliError;
use crate::cmd::upgrade_request::{access, begins, blocking_text, options};
use crate::context::Context;
use crate::display::plan as text;
use crate::output::{CommandResult, TextTable};

/// What a dry run of an upgrade shows. As JSON it is also the plan of the first version, which a person may approve.
#[derive(Serialize)]
struct ShownUpgrade<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    upgrade: UpgradeWay<'a>,
}

/// The way of an upgrade.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UpgradeWay<'a> {
    /// The place of the snapshot of etcd before the first change.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    /// APIs that clients requested and that the last version does not serve.
    removed_apis: &'a [String],
    /// Disruption budgets that allow no eviction now.
    blocking_budgets: &'a [String],
    /// Every change of version.
    hops: &'a [PlannedHop],
}

/// Shows every change on the way, and what comes before the first one.
pub(super) async fn show(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: &StoredCluster,
    hops: &[Version],
    args: &UpgradeArgs,
) -> Result<(), CliError> {
    let (host_keys, options) = (args.change.contact.options(), options(args)?);
    let way = (&args.inventory.files(), &options);
    let forecast = forecast(engine, state, hops, way, &host_keys).await?;
    let found = found(context, engine, state, hops, args).await;
    let snapshot = snapshot(context, engine, state, args);
    let shown = ShownUpgrade {
        plan: &forecast.first.plan,
        upgrade: UpgradeWay {
            snapshot: snapshot.clone(),
            removed_apis: &found.removed_apis,
            blocking_budgets: &found.blocking_budgets,
            hops: &forecast.hops,
        },
    };
    match args.change.format.output {
        format @ (Format::Table | Format::Wide) => {
            let mut all = changes(&args.name, &forecast, format == Format::Wide);
            all +=
                &before(snapshot.as_deref(), &found, options.drain_seconds, options.ignore.contains("disk"));
            let plain = || format!("kubeon upgrade {} {}", args.name, args.version);
            let command = context.typed_as("upgrade", "upgrade").unwrap_or_else(plain);
            let _ = writeln!(all, "Nothing was written. Apply with: {}", args.file.applied_by(command));
            context.output.result(&all)?;
        }
        format => {
            let ids = forecast.first.plan.steps.iter().map(|step| step.id.to_string()).collect();
            context.output.result(&CommandResult::new(&shown, TextTable::new(&[]), ids)?.text(format)?)?;
        }
    }
    Ok(args.file.write(&forecast.first.plan)?)
}

/// What stands against the upgrade, as far as a master answers.
async fn found(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: &StoredCluster,
    hops: &[Version],
    args: &UpgradeArgs,
) -> UpgradeObstacles {
    let Some(wanted) = hops.last().filter(|_| begins(state)) else { return UpgradeObstacles::default() };
    let asked = match ReadyMaster::find(engine, state, &access(args)).await {
        Ok(master) => obstacles(state, &master, *wanted).await,
        Err(error) => Err(error),
    };
    asked.unwrap_or_else(|error| {
        context.output.warn(&format!("what stands against the upgrade is not known: {}", error.title));
        UpgradeObstacles::default()
    })
}

/// The place of the snapshot of etcd; `None` if the upgrade takes none.
fn snapshot(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: &StoredCluster,
    args: &UpgradeArgs,
) -> Option<String> {
    let takes = begins(state) && !args.skip_snapshot;
    takes.then(|| match &args.snapshot {
        Some(SnapshotPlace::File(file)) => context.shorten(file),
        Some(object) => object.to_string(),
        None => context.shorten(&snapshot_folder::of_upgrades(engine, &args.name)),
    })
}

/// The changes of version, one after another.
fn changes(name: &str, forecast: &UpgradeForecast, wide: bool) -> String {
    let mut all = String::new();
    let count = forecast.hops.len();
    for (index, hop) in forecast.hops.iter().enumerate() {
        let (from, to) = (hop.from, hop.to);
        let place = if count > 1 { format!(" ({} of {count})", index + 1) } else { String::new() };
        let _ = writeln!(all, "{name}  {from} to {to}{place}");
        if let Some(trial) = &hop.trial {
            let summary = text::summary(trial);
            let until = format!("until all masters do, kubeon abort {name} goes back");
            let _ = writeln!(all, "first, every master tries the control plane of {to}; {until}: {summary}");
            all += &text::table(trial, wide).text(wide);
        }
        let _ = writeln!(all, "the cluster changes to {to}: {}", text::summary(&hop.plan));
        all += &text::table(&hop.plan, wide).text(wide);
    }
    all + &text::waits(&forecast.first.plan)
}

/// What comes before the first change, and what the upgrade meets.
fn before(snapshot: Option<&str>, found: &UpgradeObstacles, seconds: u32, ignores_disk: bool) -> String {
    let mut all = String::new();
    if let Some(place) = snapshot {
        let _ = writeln!(all, "snapshot: of etcd, to {place}, before the first change");
    }
    if !ignores_disk {
        let _ = writeln!(all, "disk: every host has space for the parts of all these versions");
    }
    for budget in &found.blocking_budgets {
        let _ = writeln!(all, "waits: {}", blocking_text(budget, seconds));
    }
    for api in &found.removed_apis {
        let _ = writeln!(
            all,
            "refused: {api} was requested by a client and is removed (--ignore {REMOVED_APIS})"
        );
    }
    for finding in &found.findings {
        let _ = writeln!(all, "refused: {} {} (--ignore {})", finding.subject, finding.reason, finding.check);
    }
    for node in &found.nodes_not_ready {
        let _ = writeln!(all, "waits: {node}");
    }
    for text in &found.stored_versions {
        let _ = writeln!(all, "warning: {text}");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_upgrade_meets_is_listed() {
        let found = UpgradeObstacles {
            removed_apis: vec!["policy/v1beta1 podsecuritypolicies".to_owned()],
            blocking_budgets: vec!["shop/web".to_owned()],
            stored_versions: vec!["CustomResourceDefinition shops does not serve v1alpha1".to_owned()],
            ..UpgradeObstacles::default()
        };
        let lines = before(Some("~/.kubeon/snapshots/demo"), &found, 300, false);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[0], "snapshot: of etcd, to ~/.kubeon/snapshots/demo, before the first change");
        assert!(lines[1].starts_with("disk: "), "{lines:?}");
        assert!(lines[2].contains("shop/web allows no disruption now"), "{lines:?}");
        assert!(lines[3].contains("policy/v1beta1 podsecuritypolicies") && lines[3].contains("removed-apis"));
        assert_eq!(lines[4], "warning: CustomResourceDefinition shops does not serve v1alpha1");
        assert_eq!(before(None, &UpgradeObstacles::default(), 300, true), "");
    }
}
