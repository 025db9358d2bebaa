//! `kubeon meta install`: the operator in a cluster that exists.

use std::time::Duration;

use kubeon_install::{InstallOptions, manifest, names};

use super::kubectl::Kubectl;
use crate::args::meta::MetaInstall;
use crate::cli_error::CliError;
use crate::context::Context;
use kubeon_engine::error::chain;

/// The operator's pods.
const SELECTOR: &str = "app.kubernetes.io/name=kubeon";

/// How often admission is asked, and how long is waited in between.
const ANSWER_TRIES: u32 = 120;
const BETWEEN_TRIES: Duration = Duration::from_millis(250);

/// Installs the operator into a cluster.
pub(super) async fn run(context: &Context<'_>, args: &MetaInstall) -> Result<(), CliError> {
    let options = args.install.options();
    if args.dry_run {
        return context.output.result(&text(&options)?);
    }
    let kubeconfig = match &args.kubeconfig {
        Some(given) => given.clone(),
        None => {
            let engine = context.engine()?;
            engine.store.kubeconfig_path(&engine.name(None)?)
        }
    };
    let kubectl = Kubectl::at_hand(context, kubeconfig)?;
    put(context, &kubectl, &options, args.wait).await
}

fn text(options: &InstallOptions) -> Result<String, CliError> {
    manifest::manifest(options).map_err(|error| CliError::failed(chain(&error)))
}

/// Applies the installation and waits so many seconds until the operator runs; 0: not at all. Watched namespaces that are
/// not there are made, and stay when the installation is deleted.
pub(super) async fn put(
    context: &Context<'_>,
    kubectl: &Kubectl,
    options: &InstallOptions,
    seconds: u32,
) -> Result<(), CliError> {
    let text = text(options)?;
    reached(kubectl).await?;
    for namespace in options.namespaces().filter(|name| *name != options.namespace) {
        let there =
            kubectl.run(&["get", "namespace", namespace, "--ignore-not-found", "-o", "name"], None).await?;
        if there.trim().is_empty() {
            kubectl.run(&["create", "namespace", namespace], None).await?;
            context.output.say(&format!("namespace {namespace} is made"));
        }
    }
    let apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=kubeon", "-f", "-"];
    let look = format!("kubectl --kubeconfig {} auth can-i --list", kubectl.kubeconfig().display());
    let applied = kubectl.run(&apply, Some(&text)).await.map_err(|stop| stop.hint(look))?;
    context.output.say(&format!("{} objects are applied", applied.lines().count()));
    if seconds == 0 || options.replicas == 0 {
        return Ok(());
    }
    context.output.say("waiting until the operator runs");
    let (deployment, limit) = (format!("deployment/{}", names::OPERATOR), format!("--timeout={seconds}s"));
    let wait = ["-n", &options.namespace, "rollout", "status", &deployment, &limit];
    if let Err(stop) = kubectl.run(&wait, None).await {
        let stop = pods(kubectl, options).await.into_iter().fold(stop, |stop, pod| stop.row("pod", pod));
        let look = format!("kubectl -n {} describe pods -l {SELECTOR}", options.namespace);
        return Err(stop.hint(look));
    }
    answers(kubectl, options).await?;
    context.output.say("the operator runs");
    Ok(())
}

/// Asks the cluster for its version: one that gives no answer, or lets nobody in, is named before anything else is tried.
async fn reached(kubectl: &Kubectl) -> Result<(), CliError> {
    let asked = kubectl.run(&["get", "--raw", "/version", "--request-timeout=20s"], None).await;
    asked.map(drop).map_err(|said| {
        let file = kubectl.kubeconfig().display();
        let stop = CliError::failed(format!("the cluster of {file} cannot be reached"));
        let stop = said.rows.into_iter().fold(stop, |stop, (subject, text)| stop.row(subject, text));
        stop.hint(format!("kubectl --kubeconfig {file} get --raw /version"))
    })
}

/// Waits until admission answers: what a person applies next is judged by it. A pod is ready before every node knows
/// the way to its service.
async fn answers(kubectl: &Kubectl, options: &InstallOptions) -> Result<(), CliError> {
    let namespace = options.watch_namespaces.first().unwrap_or(&options.namespace);
    let trial = serde_json::json!({
        "apiVersion": "ecs.yun.com/v1",
        "kind": "KubernetesCluster",
        "metadata": {"name": "kubeon-trial", "namespace": namespace},
        // An address for documentation (RFC 5737). Nothing is made.
        "spec": {"cluster": {"masterList": [{"ip": "192.0.2.1"}]}},
    });
    let words = ["create", "--dry-run=server", "-f", "-"];
    let mut last = None;
    for _ in 0..ANSWER_TRIES {
        match kubectl.run(&words, Some(&trial.to_string())).await {
            Ok(_) => return Ok(()),
            Err(stop) if is_judged(&stop) => return Ok(()),
            Err(stop) => last = Some(stop),
        }
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    let seconds = ANSWER_TRIES * u32::try_from(BETWEEN_TRIES.as_millis()).unwrap_or(u32::MAX) / 1000;
    let stop =
        CliError::failed(format!("the operator's admission webhook gives no answer within {seconds} s"));
    let rows = last.map(|last| last.rows).unwrap_or_default();
    let stop = rows.into_iter().fold(stop, |stop, (subject, text)| stop.row(subject, text));
    Err(stop.hint(format!("kubectl -n {} logs deployment/{}", options.namespace, names::OPERATOR)))
}

/// Whether somebody judged the trial and did not like it. Whatever else goes wrong is no answer.
fn is_judged(stop: &CliError) -> bool {
    stop.rows.iter().any(|(_, text)| text.contains("denied the request") || text.contains(" is invalid: "))
}

/// What its pods wait for, one line each.
async fn pods(kubectl: &Kubectl, options: &InstallOptions) -> Vec<String> {
    let state = r#"{range .items[*]}{.metadata.name}: {.status.phase} {range .status.containerStatuses[*]}{.state.waiting.reason} {.state.waiting.message}{end}{range .status.conditions[?(@.status=="False")]}{.message} {end}{"\n"}{end}"#;
    let output = format!("jsonpath={state}");
    let words = ["-n", &options.namespace, "get", "pods", "-l", SELECTOR, "-o", &output];
    match kubectl.run(&words, None).await {
        Ok(said) => said.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect(),
        Err(stop) => vec![format!("what the pods wait for cannot be read: {}", stop.reason())],
    }
}
