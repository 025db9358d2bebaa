//! Converts a planned step into the payload that is sent: resolves references to secrets and finds the file
//! of a part.

use std::path::PathBuf;

use kubeon_plan::Step;
use kubeon_ports::{ActHost, Blobs, ForwardingIdentities, Secrets};
use kubeon_wire::{Category, Content, HostStep, Op, StepFailure};

/// The ports of a run.
#[derive(Clone, Copy)]
pub struct HostPorts<'a> {
    /// Opens sessions with hosts.
    pub act: &'a dyn ActHost,
    /// Resolves references to secrets.
    pub secrets: &'a dyn Secrets,
    /// Finds the files of parts.
    pub blobs: &'a dyn Blobs,
    /// Identities with which hosts forward parts to each other; `None`: this machine sends every part to every host.
    pub forwarding: Option<&'a dyn ForwardingIdentities>,
}

/// A step that is ready to be sent, with the file that is sent after it. It holds the text of secrets, so it
/// exists only during one attempt.
pub(crate) struct Payload {
    pub step: HostStep,
    pub blob: Option<PathBuf>,
}

/// Makes the payload of a step.
pub(crate) fn resolve_secrets(step: &Step, ports: &HostPorts<'_>) -> Result<Payload, StepFailure> {
    let Step {
        id,
        stage: _,
        host: _,
        title: _,
        why: _,
        needs: _,
        digest,
        timeout_seconds,
        tries: _,
        journal,
        record_in,
        destructive: _,
        op,
    } = step;
    let blob = blob_of(op, ports.blobs)?;
    let op = op.with_contents(|content| resolve_content(content, ports.secrets))?;
    let (id, digest, record_in) = (id.to_string(), digest.clone(), record_in.clone());
    let step = HostStep { id, digest, timeout_seconds: *timeout_seconds, journal: *journal, record_in, op };
    Ok(Payload { step, blob })
}

fn resolve_content(content: &Content, secrets: &dyn Secrets) -> Result<Content, StepFailure> {
    match content {
        Content::Secret(reference) => {
            Ok(Content::Sealed(secrets.resolve(reference).map_err(|error| failed(&error))?))
        }
        Content::Text(_) | Content::Sealed(_) => Ok(content.clone()),
    }
}

fn blob_of(op: &Op, blobs: &dyn Blobs) -> Result<Option<PathBuf>, StepFailure> {
    let Op::Part { name, digest, .. } = op else { return Ok(None) };
    let missing = || failed(&format!("the bundle does not hold {name} (sha256 {digest})"));
    blobs.blob(digest).map(Some).ok_or_else(missing)
}

fn failed(cause: &dyn std::fmt::Display) -> StepFailure {
    StepFailure { category: Category::Failed, cause: cause.to_string(), log: Vec::new() }
}
