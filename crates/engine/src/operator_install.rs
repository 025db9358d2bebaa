//! Installs the operator into a cluster with kubectl, and waits until it runs.

use std::time::Duration;

use kubeon_install::{InstallOptions, manifest, names};

use crate::error::{EngineError, chain};
use crate::kubectl::Kubectl;
use crate::output::EngineOutput;
use crate::remedy::EngineRemedy;

/// The operator's pods.
const SELECTOR: &str = "app.kubernetes.io/name=kubeon";
/// Arguments that apply objects from standard input.
const APPLY: [&str; 5] = ["apply", "--server-side", "--field-manager=kubeon", "-f", "-"];

/// Number of admission requests, and the pause between them.
const ADMISSION_TRIES: u32 = 120;
const ADMISSION_PAUSE: Duration = Duration::from_millis(250);

/// The manifest of the installation.
///
/// # Errors
/// When the objects cannot be generated.
pub fn manifest(options: &InstallOptions) -> Result<String, EngineError> {
    manifest::manifest(options).map_err(|error| EngineError::failed(chain(&error)))
}

/// Applies the installation and waits until the operator runs, at most `seconds`; 0: do not wait. Creates
/// missing watched namespaces, which remain when the installation is deleted.
///
/// # Errors
/// When the cluster cannot be reached, kubectl fails, or the operator does not run in time.
pub async fn install(
    kubectl: &Kubectl,
    options: &InstallOptions,
    seconds: u32,
    output: &dyn EngineOutput,
) -> Result<(), EngineError> {
    let text = manifest(options)?;
    check_connection(kubectl).await?;
    create_namespaces(kubectl, options, output).await?;
    let arguments = ["apply", "--server-side", "--force-conflicts", "--field-manager=kubeon", "-f", "-"];
    let remedy = || EngineRemedy::CheckPermissions { kubeconfig: kubectl.kubeconfig().to_owned() };
    let applied = kubectl.run(&arguments, Some(&text)).await.map_err(|error| error.remedy(remedy()))?;
    output.info(&format!("{} objects are applied", applied.lines().count()));
    if seconds == 0 || options.replicas == 0 {
        return Ok(());
    }
    output.info("waiting for the operator to run");
    await_rollout(kubectl, options, seconds).await?;
    await_admission(kubectl, options).await?;
    output.info("the operator runs");
    Ok(())
}

/// Stores a private key as a Secret of this name in every watched namespace.
///
/// # Errors
/// When kubectl fails.
pub async fn create_login_secrets(
    kubectl: &Kubectl,
    options: &InstallOptions,
    name: &str,
    key: &str,
) -> Result<(), EngineError> {
    for namespace in options.namespaces() {
        let secret = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/ssh-auth",
            "metadata": {"name": name, "namespace": namespace},
            "stringData": {"ssh-privatekey": key},
        });
        kubectl.run(&APPLY, Some(&secret.to_string())).await?;
    }
    Ok(())
}

/// Reads the version of the cluster, so that a connection or login failure is reported first.
pub(crate) async fn check_connection(kubectl: &Kubectl) -> Result<(), EngineError> {
    let version = kubectl.run(&["get", "--raw", "/version", "--request-timeout=20s"], None).await;
    version.map(drop).map_err(|cause| {
        let file = kubectl.kubeconfig().display();
        let error = EngineError::failed(format!("the cluster of {file} cannot be reached"));
        with_rows(error, cause)
            .remedy(EngineRemedy::CheckConnection { kubeconfig: kubectl.kubeconfig().to_owned() })
    })
}

async fn create_namespaces(
    kubectl: &Kubectl,
    options: &InstallOptions,
    output: &dyn EngineOutput,
) -> Result<(), EngineError> {
    for namespace in options.namespaces().filter(|name| *name != options.namespace) {
        let existing =
            kubectl.run(&["get", "namespace", namespace, "--ignore-not-found", "-o", "name"], None).await?;
        if existing.trim().is_empty() {
            kubectl.run(&["create", "namespace", namespace], None).await?;
            output.info(&format!("namespace {namespace} is created"));
        }
    }
    Ok(())
}

async fn await_rollout(kubectl: &Kubectl, options: &InstallOptions, seconds: u32) -> Result<(), EngineError> {
    let (deployment, limit) = (format!("deployment/{}", names::OPERATOR), format!("--timeout={seconds}s"));
    let wait = ["-n", &options.namespace, "rollout", "status", &deployment, &limit];
    let Err(error) = kubectl.run(&wait, None).await else { return Ok(()) };
    let error = pods(kubectl, options).await.into_iter().fold(error, |error, pod| error.row("pod", pod));
    let namespace = options.namespace.to_string();
    Err(error.remedy(EngineRemedy::InspectOperatorPods { namespace, selector: SELECTOR }))
}

/// Waits until the admission webhook answers, because the next objects of the user need it. A pod is ready
/// before every node can route to its service.
async fn await_admission(kubectl: &Kubectl, options: &InstallOptions) -> Result<(), EngineError> {
    let namespace = options.watch_namespaces.first().unwrap_or(&options.namespace);
    let trial = serde_json::json!({
        "apiVersion": "ecs.yun.com/v1",
        "kind": "KubernetesCluster",
        "metadata": {"name": "kubeon-trial", "namespace": namespace},
        // An address for documentation (RFC 5737). The dry run creates nothing.
        "spec": {"cluster": {"masterList": [{"ip": "192.0.2.1"}]}},
    });
    let words = ["create", "--dry-run=server", "-f", "-"];
    let mut last = None;
    for _ in 0..ADMISSION_TRIES {
        match kubectl.run(&words, Some(&trial.to_string())).await {
            Ok(_) => return Ok(()),
            Err(error) if is_admission_answer(&error) => return Ok(()),
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(ADMISSION_PAUSE).await;
    }
    let seconds = (ADMISSION_PAUSE * ADMISSION_TRIES).as_secs();
    let error =
        EngineError::failed(format!("the operator's admission webhook gives no answer within {seconds} s"));
    let error = match last {
        Some(last) => with_rows(error, last),
        None => error,
    };
    Err(error.remedy(EngineRemedy::ReadOperatorLog { namespace: options.namespace.to_string() }))
}

/// The error with the details of its cause.
pub(crate) fn with_rows(error: EngineError, cause: EngineError) -> EngineError {
    cause.rows.into_iter().fold(error, |error, (subject, text)| error.row(subject, text))
}

/// Whether the error shows that the webhooks answer: a denial of theirs, or one of a policy or of the schema, which come after the
/// webhook that records the requester. An address for documentation is in no host pool.
fn is_admission_answer(error: &EngineError) -> bool {
    let answers = ["denied the request: ", " denied request: ", " is invalid: "];
    error.rows.iter().any(|(_, text)| answers.iter().any(|answer| text.contains(answer)))
}

/// The state of the operator's pods, one line per pod.
async fn pods(kubectl: &Kubectl, options: &InstallOptions) -> Vec<String> {
    let state = r#"{range .items[*]}{.metadata.name}: {.status.phase} {range .status.containerStatuses[*]}{.state.waiting.reason} {.state.waiting.message}{end}{range .status.conditions[?(@.status=="False")]}{.message} {end}{"\n"}{end}"#;
    let output = format!("jsonpath={state}");
    let words = ["-n", &options.namespace, "get", "pods", "-l", SELECTOR, "-o", &output];
    match kubectl.run(&words, None).await {
        Ok(text) => text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect(),
        Err(error) => vec![format!("cannot read the state of the pods: {error}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_shows_that_the_webhooks_answer() {
        let answers = |text: &str| is_admission_answer(&EngineError::failed("kubectl").row("kubectl", text));
        for denial in [
            "admission webhook \"validator.kubeon.io\" denied the request: spec.cluster: no such host",
            "kubernetesclusters.ecs.yun.com \"kubeon-trial\" is forbidden: ValidatingAdmissionPolicy 'kubeon-host-pool' with binding \
             'kubeon-host-pool' denied request: spec.cluster: host 192.0.2.1 is outside of the addresses of namespace default",
            "KubernetesCluster.ecs.yun.com \"kubeon-trial\" is invalid: spec.cluster: Required value",
        ] {
            assert!(answers(denial), "{denial}");
        }
        let silent = "failed calling webhook \"requester.kubeon.io\": Post \"https://kubeon-webhook…\": connection refused";
        assert!(!answers(silent));
    }
}
