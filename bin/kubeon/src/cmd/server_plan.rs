//! `kubeon --server URL plan` and `approve`: the operator plans a change, and applies the plan after its approval.

use std::time::Duration;

use kubeon_rest::{ClusterDetail, ClusterView, OperationView};
use serde_json::{Value, json};

use super::server::ServerCommands;
use crate::args::Format;
use crate::args::cluster::PlanArgs;
use crate::args::server::ApproveArgs;
use crate::cli_error::CliError;
use crate::context::Context;

/// The time limit of a plan; operations that run before it are part of it.
const LIMIT: Duration = Duration::from_secs(1800);
/// The reason of the condition `Progressing` when a plan waits for its approval.
const WAITS: &str = "WaitsForApproval";

impl ServerCommands {
    /// Declares the cluster so that its changes are planned before, waits for the plan, and prints it.
    pub(super) fn plan(&self, context: &Context<'_>, args: &PlanArgs) -> Result<(), CliError> {
        if args.file.is_given() || !matches!(args.format.output, Format::Table | Format::Wide) {
            return Err(CliError::refused(
                "with --server, the plan stays in the meta cluster and is printed as text: leave out --out and -o",
            ));
        }
        let mut declared = self.declaration("plan", args.cluster.file.as_deref())?;
        let Some(Value::Object(spec)) = declared.object.get_mut("spec") else {
            return Err(CliError::refused("the file declares no KubernetesCluster: it has no spec"));
        };
        spec.insert("plan".to_owned(), json!(true));
        let generation = self.declare(&declared)?.summary.generation;
        let (namespace, name) = (declared.namespace.as_str(), declared.name.as_str());
        context.output.info(&format!("{namespace}/{name}: the operator plans the change"));
        let mut shown = None;
        self.client.wait_for_cluster((namespace, name), ("the plan", LIMIT), |cluster| {
            let planned = is_planned(cluster, generation);
            // Why the operator does not begin, such as a pause.
            if planned.is_none() && cluster.reason != shown {
                shown.clone_from(&cluster.reason);
                shown.iter().for_each(|reason| context.output.info(reason));
            }
            planned
        })?;
        let cluster = self.client.cluster(namespace, name)?;
        let operations = self.operations_of(Some(namespace), Some(name))?;
        let last = operations.into_iter().rev().find(|operation| operation.plans);
        match outcome(&cluster, last) {
            Outcome::NothingToDo => context.output.result(&format!("{namespace}/{name}: nothing to do\n")),
            Outcome::Refused(reason) => {
                let error = CliError::failed(format!("{namespace}/{name}: no plan was made"));
                Err(error.row("cause", reason))
            }
            Outcome::Planned(operation) => {
                for line in self.client.log(&operation, false, None)? {
                    context.output.result(&format!("{}\n", line?))?;
                }
                context.output.info(&format!("apply it with: kubeon --server URL approve {operation}"));
                Ok(())
            }
        }
    }

    pub(super) fn approve(&self, context: &Context<'_>, args: &ApproveArgs) -> Result<(), CliError> {
        let approved = self.client.approve(&args.operation)?.summary;
        context.output.result(&format!("the plan of {} is approved\n", args.operation))?;
        context.output.info(&format!("next: kubeon --server URL logs -f {}", approved.cluster));
        Ok(())
    }
}

/// Whether the operator has processed the declaration and no operation runs.
fn is_planned(cluster: &ClusterView, generation: i64) -> Option<()> {
    (cluster.observed_generation >= Some(generation) && cluster.operation.is_none()).then_some(())
}

/// What became of a declaration whose changes are planned before.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The plan of this operation waits for its approval.
    Planned(String),
    /// The cluster is as declared.
    NothingToDo,
    /// There is no plan, for this reason.
    Refused(String),
}

fn outcome(cluster: &ClusterDetail, last_plan: Option<OperationView>) -> Outcome {
    let waits = cluster.conditions.iter().any(|found| found.kind == "Progressing" && found.reason == WAITS);
    let reason = || cluster.summary.reason.clone();
    match (last_plan, cluster.summary.phase.as_deref()) {
        (Some(plan), _) if waits && plan.status == "Succeeded" => Outcome::Planned(plan.name),
        (Some(plan), Some("Failed")) => Outcome::Refused(plan.reason.or_else(reason).unwrap_or_default()),
        (_, Some("Running")) if reason().is_none() => Outcome::NothingToDo,
        _ => Outcome::Refused(reason().unwrap_or_else(|| "the operator names none".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use kubeon_rest::ConditionView;

    use super::*;

    fn cluster(phase: &str, reason: Option<&str>, progressing: &str) -> ClusterDetail {
        let condition = ConditionView {
            kind: "Progressing".to_owned(),
            status: "False".to_owned(),
            reason: progressing.to_owned(),
            message: String::new(),
            last_transition: String::new(),
        };
        ClusterDetail {
            summary: ClusterView {
                phase: Some(phase.to_owned()),
                reason: reason.map(str::to_owned),
                ..ClusterView::default()
            },
            labels: Default::default(),
            annotations: Default::default(),
            spec: Value::Null,
            kubeconfig_secret: None,
            conditions: vec![condition],
        }
    }

    fn plan(status: &str) -> Option<OperationView> {
        let reason = (status == "Failed").then(|| "h4 cannot be reached".to_owned());
        Some(OperationView {
            name: "p".to_owned(),
            status: status.to_owned(),
            reason,
            ..OperationView::default()
        })
    }

    #[test]
    fn the_status_says_what_became_of_a_plan() {
        let waiting = cluster("Running", Some("the plan of p waits"), WAITS);
        assert_eq!(outcome(&waiting, plan("Succeeded")), Outcome::Planned("p".to_owned()));
        let failed = cluster("Failed", Some("it failed"), "Failed");
        assert_eq!(outcome(&failed, plan("Failed")), Outcome::Refused("h4 cannot be reached".to_owned()));
        let same = cluster("Running", None, "UpToDate");
        assert_eq!(outcome(&same, None), Outcome::NothingToDo);
        assert_eq!(outcome(&same, plan("Succeeded")), Outcome::NothingToDo);
        let refused = cluster("Running", Some("cannot be changed yet"), "UpToDate");
        assert_eq!(outcome(&refused, None), Outcome::Refused("cannot be changed yet".to_owned()));
    }

    #[test]
    fn an_older_declaration_or_a_running_operation_is_waited_for() {
        let view = |observed, operation: Option<&str>| ClusterView {
            observed_generation: observed,
            operation: operation.map(str::to_owned),
            ..ClusterView::default()
        };
        assert_eq!(is_planned(&view(None, None), 1), None);
        assert_eq!(is_planned(&view(Some(1), None), 2), None);
        assert_eq!(is_planned(&view(Some(2), Some("p")), 2), None);
        assert_eq!(is_planned(&view(Some(2), None), 2), Some(()));
    }
}
