//! A step holds references to secrets, never their text, so that a plan can be printed and stored.

use kubeon_wire::{Content, Op};

use super::finding::LintFinding;
use crate::input::Snapshot;
use crate::output::{Plan, Step};

/// Names that precede a secret: keys of kubeconfigs and objects, and flags of programs.
const NAMES: [&str; 3] = ["client-key-data", "token", "password"];

pub(super) fn check(plan: &Plan, _: &Snapshot) -> Vec<LintFinding> {
    plan.steps
        .iter()
        .flat_map(|step| found(step).into_iter().map(|text| LintFinding::fatal("secret", text)))
        .collect()
}

fn found(step: &Step) -> Vec<String> {
    let plain = |place: &str| format!("{} holds a secret in plain text: {place}", step.id);
    let mut found = Vec::new();
    match &step.op {
        Op::Files { files } => {
            for file in files {
                let (open, wide) = match &file.content {
                    Content::Text(text) => (is_secret(text), false),
                    Content::Sealed(_) => (true, false),
                    Content::Secret(secret) => (false, is_key(secret) && file.mode & 0o077 != 0),
                };
                found.extend(open.then(|| plain(&file.path)));
                found
                    .extend(wide.then(|| format!("{} would make {} readable by others", step.id, file.path)));
            }
        }
        Op::Objects { objects } => {
            let is_open = |object: &&kubeon_wire::ApiObject| {
                object.body["kind"] == "Secret" || is_secret(&object.body.to_string())
            };
            found.extend(objects.iter().filter(is_open).map(|object| plain(&object.path)));
        }
        Op::Service { name, unit, .. } => found.extend(is_secret(unit).then(|| plain(name))),
        Op::Hosts { entries } => {
            let names = entries.iter().flat_map(|entry| &entry.names);
            found.extend(names.filter(|name| is_secret(name)).map(|_| plain("/etc/hosts")));
        }
        _ => {}
    }
    found
}

fn is_secret(text: &str) -> bool {
    text.contains("PRIVATE KEY-----") || NAMES.iter().any(|name| is_given(text, name))
}

/// Whether the text contains the name as a key or a flag with a value.
fn is_given(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = &text[..at];
        let flag = before.ends_with(" --") || before.ends_with("\n--");
        let key = before.chars().next_back().is_none_or(|c| c.is_whitespace() || "\"'{,".contains(c));
        let rest = text[at + name.len()..].trim_start_matches(['"', '\'']).trim_start_matches(' ');
        let Some(value) = rest.strip_prefix([':', '=']) else { return false };
        let value = value.lines().next().unwrap_or_default().trim_matches([' ', '"', '\'', ',', '}']);
        (flag || key) && !value.is_empty() && value != "null"
    })
}

fn is_key(secret: &kubeon_wire::SecretRef) -> bool {
    use kubeon_wire::SecretRef::{
        CaCertificate, CaKey, EncryptionConfiguration, LeafCertificate, LeafKey, ServiceAccountKey,
        ServiceAccountPublicKey, SigningCertificate,
    };
    match secret {
        CaKey { .. } | EncryptionConfiguration { .. } | LeafKey(_) | ServiceAccountKey => true,
        CaCertificate { .. } | SigningCertificate { .. } | LeafCertificate(_) | ServiceAccountPublicKey => {
            false
        }
    }
}
