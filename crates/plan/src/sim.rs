//! A pure simulator: what a plan would leave behind is written into the next snapshot, turn by turn. Its
//! log is the golden text of the stories in `tests/`; reviewers read there what an operation does and why.

use std::fmt::Write as _;

use kubeon_api::HostAddress;
use kubeon_wire::{CertificateFact, Claim, Content, Facts, JournalEntry, Op, SecretRef, Standing};

use crate::input::{Intent, Seen, Snapshot};
use crate::output::{Plan, PlanError, Step};

/// A host as bare as the lab's: Linux with systemd, root, room, nothing of Kubernetes.
#[must_use]
pub fn bare(hostname: &str) -> Facts {
    Facts {
        system: "Linux".to_owned(),
        architecture: "x86_64".to_owned(),
        kernel: "6.1.0".to_owned(),
        hostname: hostname.to_owned(),
        os: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        machine_id: format!("machine-{hostname}"),
        cpus: 2,
        memory_bytes: 4 << 30,
        disk_free_bytes: 20 << 30,
        can_sys_resource: true,
        can_set_conntrack: true,
        has_nftables: true,
        is_root: true,
        has_systemd: true,
        package_manager: Some("apt".to_owned()),
        ..Facts::default()
    }
}

/// Writes into the snapshot what the first `count` steps of a plan leave behind.
pub fn apply(plan: &Plan, count: usize, snapshot: &mut Snapshot) {
    let now = snapshot.taken_at;
    for step in plan.steps.iter().take(count) {
        let Some(Seen::Fresh(facts)) = snapshot.hosts.get_mut(&step.host) else { continue };
        if let Op::Reset { .. } = step.op {
            *facts = bare(&facts.hostname);
            continue;
        }
        claim(plan, step.host, facts);
        leave(step, now, facts);
    }
}

fn claim(plan: &Plan, host: HostAddress, facts: &mut Facts) {
    let Some(planned) = plan.hosts.get(&host) else { return };
    let fence = planned.fence.clone();
    facts.claim = Some(Claim {
        cluster: fence.cluster,
        uid: fence.uid,
        generation: fence.generation,
        version: fence.version,
        role: fence.role,
    });
}

fn leave(step: &Step, now: i64, facts: &mut Facts) {
    match &step.op {
        Op::Part { digest, .. } if !facts.parts.contains(digest) => facts.parts.push(digest.clone()),
        Op::Files { files } => {
            for file in files {
                let Content::Secret(SecretRef::LeafCertificate(leaf)) = &file.content else { continue };
                if !file.path.starts_with(kubeon_render::paths::PKI) {
                    continue;
                }
                facts.certificates.retain(|seen| seen.path != file.path);
                let not_after = now + i64::from(leaf.hours) * 3600;
                facts.certificates.push(CertificateFact {
                    path: file.path.clone(),
                    not_before: now,
                    not_after,
                });
            }
        }
        _ => {}
    }
    if step.journal {
        facts.journal.retain(|entry| entry.id != step.id);
        facts.journal.push(JournalEntry {
            id: step.id.clone(),
            digest: step.digest.clone(),
            standing: Standing::Stands,
        });
    }
}

/// Plans and applies, at most `turns` times, until nothing is left to do. Returns the log.
pub fn story(intent: &Intent, snapshot: &mut Snapshot, turns: usize) -> String {
    let mut log = String::new();
    for turn in 1..=turns {
        match crate::plan(intent, snapshot) {
            Ok(plan) => {
                let _ = writeln!(log, "turn {turn}: {}", describe(&plan));
                if plan.steps.is_empty() {
                    break;
                }
                apply(&plan, plan.steps.len(), snapshot);
            }
            Err(error) => {
                let _ = writeln!(log, "turn {turn}: {}", refused(&error));
                break;
            }
        }
    }
    log
}

/// A plan as text: one line per step.
#[must_use]
pub fn describe(plan: &Plan) -> String {
    let mut text = format!(
        "{} {} generation {}: {} steps, {} stand\n",
        plan.cluster,
        plan.version,
        plan.generation,
        plan.steps.len(),
        plan.standing
    );
    for note in &plan.notes {
        let host = note.host.map(|host| format!("{host} ")).unwrap_or_default();
        let _ = writeln!(text, "  note: {host}{}", note.text);
    }
    for step in &plan.steps {
        let _ = writeln!(text, "  {:<28} {}, because {}", step.id, step.title, step.why);
        if !step.needs.is_empty() {
            let _ = writeln!(text, "  {:<28}   after {}", "", step.needs.join(" "));
        }
    }
    text
}

/// A refusal as text.
#[must_use]
pub fn refused(error: &PlanError) -> String {
    let mut text = format!("refused: {error}\n");
    for refusal in &error.refusals {
        let _ = writeln!(text, "  {} {}", refusal.subject, refusal.reason);
    }
    text
}
