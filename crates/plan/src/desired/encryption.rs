//! Encryption of Secrets in etcd. The API servers share one key.
//!
//! An API server can read a Secret that another one encrypted only if it knows the key. In a cluster that was made
//! without encryption, the first plan gives the key to every API server, and each proves that it runs with it. The
//! plan that follows lets them encrypt. API servers of a new cluster encrypt from the start. Whether a master that was
//! not observed has the key is unknown, so encryption does not begin before it answers.

use kubeon_render::paths::etc;
use kubeon_wire::{Op, SecretRef};

use super::control_plane::{STAGE, api_ready, apiserver_id};
use super::files::secret;
use super::step::DesiredStep;
use crate::context::{ObservedHost, PlanContext};
use crate::step_id::StepId;

/// The step that writes the encryption configuration of a host.
pub(crate) fn configuration_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "encryption")
}

/// The step after which the API server of a host is known to run with the key.
fn proof_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "decrypts")
}

/// Whether the API servers may encrypt: an earlier plan decided it, or each API server that exists runs with the key.
pub(crate) fn encrypts(context: &PlanContext<'_>) -> bool {
    let proven = |host: &ObservedHost<'_>| {
        !host.has_executed(&apiserver_id(host)) || host.has_executed(&proof_id(host))
    };
    context.masters().any(|host| was_told_to_encrypt(context, host))
        || context.observes_all_masters() && context.masters().all(proven)
}

/// Whether the journal of the host contains the configuration that encrypts.
fn was_told_to_encrypt(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> bool {
    context.host_records(host, &configuration_id(host), &operation(true))
}

fn operation(encrypts: bool) -> Op {
    let file = secret(etc("encryption.yaml"), SecretRef::EncryptionConfiguration { encrypts });
    Op::Files { files: vec![file] }
}

/// Writes the encryption configuration. A running API server reads a changed file within a minute, without a restart.
pub(crate) fn configuration(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let encrypts = encrypts(context);
    let title =
        if encrypts { "let Secrets be encrypted in etcd" } else { "write the key for Secrets in etcd" };
    DesiredStep::new(host, configuration_id(host), operation(encrypts))
        .title(title)
        .because("Secrets are stored as they are")
}

fn rewrite_id() -> StepId {
    StepId::of_cluster(STAGE, "rewrite-secrets")
}

/// Stores all Secrets under the key that encrypts now, after every API server runs with it. Then the old key may go.
pub(crate) fn rewrite(context: &PlanContext<'_>) -> Option<DesiredStep> {
    let keys = Some(context.keys().signing()).filter(|_| context.renews() && encrypts(context))?;
    let step = DesiredStep::of_cluster(context, rewrite_id(), Op::RewriteSecrets { keys });
    Some(
        step.title("store all Secrets under the new key")
            .because("they are stored under the old key")
            .within(600)
            .needs(context.masters().map(apiserver_id)),
    )
}

/// Records that the API server runs with the key. Without that record no API server encrypts.
pub(crate) fn proof(host: &ObservedHost<'_>) -> DesiredStep {
    DesiredStep::new(host, proof_id(host), Op::Await { checks: vec![api_ready()] })
        .title("kube-apiserver can decrypt Secrets")
        .because("it was started with the key")
        .needs([apiserver_id(host)])
        .check(None)
}
