//! Removes the operator from a cluster with kubectl. Refuses while it has clusters, unless they are handed over.
//!
//! ```text
//!   living clusters, running operations ──► refused
//!   admission ──► operator, its rights ──► (unless handed over) ended operations, definitions, namespace
//! ```
//!
//! Objects are found by their label, so an installation with other options, or by the chart, is removed too.

use kubeon_install::names;

use crate::error::EngineError;
use crate::kubectl::Kubectl;
use crate::operator_install::check_connection;
use crate::output::EngineOutput;
use crate::remedy::EngineRemedy;

/// The label of every installed object.
const INSTALLED: &str = "app.kubernetes.io/part-of=kubeon";
/// Kinds that would refuse or delay the removal of others.
const ADMISSION: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io,\
mutatingwebhookconfigurations.admissionregistration.k8s.io,\
validatingadmissionpolicybindings.admissionregistration.k8s.io,validatingadmissionpolicies.admissionregistration.k8s.io";
/// The operator, and the rights of it, its Jobs and its users, in all namespaces.
const OPERATOR: [&str; 2] = [
    "deployments.apps,services,configmaps,poddisruptionbudgets.policy,networkpolicies.networking.k8s.io,serviceaccounts,\
roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io,clusterroles.rbac.authorization.k8s.io,priorityclasses.scheduling.k8s.io,\
flowschemas.flowcontrol.apiserver.k8s.io",
];
/// What a user declares: the names of the definitions.
const CLUSTERS: [&str; 2] = ["kubernetesclusters.ecs.yun.com", "clusters.kubeonkube.clay.io"];
const OPERATIONS: &str = "clusteroperations.kubeonkube.clay.io";
/// The number of objects that an error names.
const NAMED: usize = 10;

/// What to remove.
#[derive(Debug, Clone)]
pub struct UninstallOptions {
    /// The operator's namespace.
    pub namespace: String,
    /// Keep the clusters, their objects, keys and definitions, so that another installation goes on with them.
    pub hand_over: bool,
    /// Do not ask.
    pub yes: bool,
}

/// Removes the operator. What is missing already is no error, so a removal that was killed can be run again.
///
/// # Errors
/// Refuses while clusters exist or operations run, and when the user does not confirm. Fails when the cluster cannot be reached
/// or kubectl fails.
pub async fn uninstall(
    kubectl: &Kubectl,
    options: &UninstallOptions,
    output: &dyn EngineOutput,
) -> Result<(), EngineError> {
    check_connection(kubectl).await?;
    refuse_while_used(kubectl, options).await?;
    confirm(kubectl, options, output)?;
    delete(kubectl, ADMISSION, output).await?;
    if !options.hand_over && is_defined(kubectl, OPERATIONS).await? {
        // Before the operator goes, which removes their finalizers.
        run(kubectl, &["delete", OPERATIONS, "--all", "--wait", "--timeout=120s"], output).await?;
    }
    for kinds in OPERATOR {
        delete(kubectl, kinds, output).await?;
    }
    if options.hand_over {
        output.info(&format!("the clusters stay; their keys are in the Secrets of {}", options.namespace));
        return Ok(());
    }
    let definitions = [
        &["delete", "customresourcedefinition", "--ignore-not-found", "--wait"],
        &CLUSTERS[..],
        &[OPERATIONS],
    ];
    run(kubectl, &definitions.concat(), output).await?;
    let namespace =
        ["delete", "namespace", &options.namespace, "--ignore-not-found", "--wait", "--timeout=300s"];
    run(kubectl, &namespace, output).await?;
    output.info("the operator is removed");
    Ok(())
}

async fn refuse_while_used(kubectl: &Kubectl, options: &UninstallOptions) -> Result<(), EngineError> {
    let running = objects(kubectl, OPERATIONS, &["-l", "!hasCompleted"]).await?;
    if !running.is_empty() {
        let error = EngineError::refused("the operator was not removed: operations have not ended");
        return Err(named(error, "operation", &running).remedy(EngineRemedy::EndOperations));
    }
    if options.hand_over {
        return Ok(());
    }
    let mut clusters = Vec::new();
    for kind in CLUSTERS {
        clusters.extend(objects(kubectl, kind, &[]).await?);
    }
    if clusters.is_empty() {
        return Ok(());
    }
    let error = EngineError::refused("the operator was not removed: it has clusters");
    Err(named(error, "cluster", &clusters).remedy(EngineRemedy::DeleteOrHandOverClusters))
}

/// The objects of a kind as `kind namespace/name`; none if the kind is not defined.
async fn objects(kubectl: &Kubectl, kind: &str, more: &[&str]) -> Result<Vec<String>, EngineError> {
    if !is_defined(kubectl, kind).await? {
        return Ok(Vec::new());
    }
    let output = r#"jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}"#;
    let text = kubectl.run(&[&["get", kind, "-A", "-o", output], more].concat(), None).await?;
    Ok(text.lines().map(|line| line.replace(" /", " ")).filter(|line| !line.trim().is_empty()).collect())
}

/// Whether the cluster has the definition of this name.
pub(crate) async fn is_defined(kubectl: &Kubectl, kind: &str) -> Result<bool, EngineError> {
    let definition = ["get", "customresourcedefinition", kind, "--ignore-not-found", "-o", "name"];
    Ok(!kubectl.run(&definition, None).await?.trim().is_empty())
}

fn named(error: EngineError, what: &str, objects: &[String]) -> EngineError {
    let error = objects.iter().take(NAMED).fold(error, |error, object| error.row(what, object.clone()));
    match objects.len().saturating_sub(NAMED) {
        0 => error,
        more => error.row(what, format!("and {more} more")),
    }
}

fn confirm(
    kubectl: &Kubectl,
    options: &UninstallOptions,
    output: &dyn EngineOutput,
) -> Result<(), EngineError> {
    let kept = if options.hand_over { ", and keep its clusters" } else { " and its namespace" };
    let question =
        format!("Remove {}{kept} from the cluster of {}?", names::OPERATOR, kubectl.kubeconfig().display());
    if options.yes || output.confirm(&question)? {
        return Ok(());
    }
    Err(EngineError::refused("the operator was not removed: not confirmed")
        .remedy(EngineRemedy::ConfirmUninstall))
}

/// Deletes all installed objects of these kinds.
async fn delete(kubectl: &Kubectl, kinds: &str, output: &dyn EngineOutput) -> Result<(), EngineError> {
    let everywhere =
        ["delete", kinds, "-A", "-l", INSTALLED, "--ignore-not-found", "--wait", "--timeout=120s"];
    run(kubectl, &everywhere, output).await
}

async fn run(kubectl: &Kubectl, words: &[&str], output: &dyn EngineOutput) -> Result<(), EngineError> {
    let remedy = || EngineRemedy::CheckPermissions { kubeconfig: kubectl.kubeconfig().to_owned() };
    let deleted = kubectl.run(words, None).await.map_err(|error| error.remedy(remedy()))?;
    deleted.lines().filter(|line| line.contains(" deleted")).for_each(|line| output.detail(1, line));
    Ok(())
}
