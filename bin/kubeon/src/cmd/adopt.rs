//! `kubeon adopt`.

use kubeon_api::HostAddress;
use kubeon_engine::adoption::{AdoptedCluster, AdoptionRequest, adopt};
use kubeon_engine::engine::StoredCluster;
use kubeon_engine::preview::PlanPreview;
use kubeon_plan::Plan;
use serde::Serialize;

use crate::args::Format;
use crate::args::adopt::AdoptArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable, words};

/// Rebuilds the lost state of a cluster from its masters, or makes that of a cluster of kubeadm.
pub(super) async fn run(context: &Context<'_>, args: &AdoptArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let (masters, workers) = (sorted(&args.masters), sorted(&args.workers));
    let access = args.login.access(&args.contact);
    let request = AdoptionRequest {
        name: &args.name,
        masters: &masters,
        workers: &workers,
        access: &access,
        dry_run: args.dry_run,
    };
    let adopted = adopt(&engine, &request).await?;
    show(context, &adopted, args)
}

fn sorted(hosts: &[HostAddress]) -> Vec<HostAddress> {
    let mut hosts = hosts.to_vec();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

fn show(context: &Context<'_>, adopted: &AdoptedCluster, args: &AdoptArgs) -> Result<(), CliError> {
    let (state, output) = (&adopted.state, context.output);
    let name = &state.name;
    let plan = adopted.plan.as_deref();
    match args.format.output {
        format @ (Format::Table | Format::Wide) => {
            if let Some(PlanPreview { plan, intent, took, .. }) = plan {
                let command = context.continue_command("create", name);
                super::plan::show(context, plan, Some(intent), *took, &command, format)?;
            }
            output.result(&sentence(state, args.dry_run))?;
        }
        other => {
            let plan = plan.map(|preview| &preview.plan);
            let result = AdoptionResult { plan, ..AdoptionResult::of(state, !args.dry_run) };
            let answer = CommandResult::new(&result, TextTable::new(&[]), vec![name.to_string()])?;
            output.result(&answer.text(other)?)?;
        }
    }
    let Some(kubeconfig) = &adopted.kubeconfig else {
        output.info("Nothing was written.");
        return Ok(());
    };
    output.info(&format!("kubeconfig: {}", context.shorten(kubeconfig)));
    if plan.is_some() {
        output.info(&format!(
            "{name} runs as kubeadm made it until kubeon create {name} applies the plan: do not use kubeadm from then on."
        ));
        return Ok(());
    }
    output.info(&format!(
        "Each host of {name} refuses the control machine that had it before, once a change from here has reached it: do not use both."
    ));
    output.info(&format!("next: kubeon plan {name} · kubeon state export {name} {name}.tar.zst"));
    Ok(())
}

/// `demo is adopted: v1.36.3, 1 master, 2 workers`.
fn sentence(state: &StoredCluster, dry_run: bool) -> String {
    let spec = &state.spec;
    let can = if dry_run { "can be adopted" } else { "is adopted" };
    let masters = words::count(spec.masters.len(), "master");
    let workers = words::count(spec.workers.len(), "worker");
    format!("{} {can}: {}, {masters}, {workers}\n", state.name, spec.version)
}

/// The result of an adoption.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdoptionResult<'p> {
    cluster: String,
    uid: String,
    version: String,
    masters: Vec<String>,
    workers: Vec<String>,
    generation: u64,
    /// Whether it was stored.
    stored: bool,
    /// What the first change does, if kubeadm made the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'p Plan>,
}

impl AdoptionResult<'_> {
    fn of(state: &StoredCluster, stored: bool) -> Self {
        let addresses = |hosts: &[kubeon_plan::HostSpec]| {
            hosts.iter().map(|host| host.address.to_string()).collect::<Vec<_>>()
        };
        Self {
            cluster: state.name.to_string(),
            uid: state.uid.clone(),
            version: state.spec.version.to_string(),
            masters: addresses(&state.spec.masters),
            workers: addresses(&state.spec.workers),
            generation: state.generation,
            stored,
            plan: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim;

    use super::*;

    #[test]
    fn the_result_says_what_was_found() {
        let spec = sim::cluster(&["10.0.0.1"], &["10.0.0.2", "10.0.0.3"]);
        let state = StoredCluster::new(spec.name.clone(), spec);
        assert_eq!(sentence(&state, false), "demo is adopted: v1.36.3, 1 master, 2 workers\n");
        assert_eq!(sentence(&state, true), "demo can be adopted: v1.36.3, 1 master, 2 workers\n");
        let result = serde_json::to_value(AdoptionResult::of(&state, true)).unwrap();
        assert_eq!((&result["workers"][1], &result["stored"]), (&"10.0.0.3".into(), &true.into()));
    }
}
