//! No step holds the text of a secret: only references, so that a plan can be printed and kept.

use kubeon_wire::{Content, Op};

use super::Finding;
use crate::input::Snapshot;
use crate::output::Plan;

pub(super) fn check(plan: &Plan, _: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    for step in &plan.steps {
        let Op::Files { files } = &step.op else { continue };
        for file in files {
            let (open, wide) = match &file.content {
                Content::Text(text) => (text.contains("PRIVATE KEY-----"), false),
                Content::Sealed(_) => (true, false),
                Content::Secret(secret) => (false, is_key(secret) && file.mode & 0o077 != 0),
            };
            if open {
                findings.push(Finding::fatal(
                    "secret",
                    format!("{} holds a secret in clear: {}", step.id, file.path),
                ));
            }
            if wide {
                findings.push(Finding::fatal(
                    "secret",
                    format!("{} would make {} readable by others", step.id, file.path),
                ));
            }
        }
    }
    findings
}

fn is_key(secret: &kubeon_wire::SecretRef) -> bool {
    use kubeon_wire::SecretRef::{
        CaCertificate, CaKey, LeafCertificate, LeafKey, ServiceAccountKey, ServiceAccountPublicKey,
    };
    match secret {
        CaKey { .. } | LeafKey(_) | ServiceAccountKey => true,
        CaCertificate { .. } | LeafCertificate(_) | ServiceAccountPublicKey => false,
    }
}
