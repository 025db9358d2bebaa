//! The world as text.

use std::borrow::Cow;
use std::fmt::Write as _;

use kubeon_wire::Op;

use super::host::SimulatedHost;
use super::state::State;
use crate::text::fingerprint;

/// The text without the dates of a certificate.
fn undated(text: &str) -> Cow<'_, str> {
    if !text.contains("not-before=") {
        return Cow::Borrowed(text);
    }
    let dated = |word: &str| word.starts_with("not-before=") || word.starts_with("not-after=");
    text.split_inclusive(char::is_whitespace).filter(|word| !dated(word)).collect()
}

/// Renders everything that must be equal after two runs.
pub(super) fn render(state: &State) -> String {
    let mut rendered = String::new();
    for host in state.hosts.values() {
        render_host(&mut rendered, host, state);
    }
    for (uid, cluster) in &state.clusters {
        let mut line = |text: String| writeln!(rendered, "{uid} {text}").unwrap();
        line(format!("etcd {:?} learners {:?}", cluster.formed, cluster.learners));
        cluster
            .objects
            .iter()
            .for_each(|(path, body)| line(format!("object {path} {}", fingerprint(&body.to_string()))));
        cluster.nodes.iter().for_each(|(name, at)| line(format!("node {name} {at}")));
        cluster.tainted.iter().for_each(|name| line(format!("tainted {name}")));
        let declared = cluster.taints.iter();
        declared.for_each(|(name, taints)| line(format!("taints {name} {}", taints.join(" "))));
        cluster.drained.iter().for_each(|name| line(format!("drained {name}")));
        cluster
            .records
            .iter()
            .for_each(|((object, id), digest)| line(format!("record {object} {id} {digest}")));
    }
    rendered
}

fn render_host(rendered: &mut String, host: &SimulatedHost, state: &State) {
    let name = host.name();
    let mut line = |text: String| writeln!(rendered, "{name} {text}").unwrap();
    if let Some(claim) = &host.claim {
        line(format!("claim {} {} {} {}", claim.cluster, claim.uid, claim.version, claim.role));
    }
    host.kernel.iter().for_each(|(key, value)| line(format!("kernel {key} = {value}")));
    for entry in host.names.iter().flatten() {
        line(format!("names {} {}", entry.address, entry.names.join(" ")));
    }
    for (path, file) in &host.files {
        let kind = if file.secret { "secret" } else { "file" };
        line(format!("{kind} {path} {:o} {}", file.mode, fingerprint(&undated(&file.text))));
    }
    host.links.iter().for_each(|(path, target)| line(format!("link {path} -> {target}")));
    host.parts.iter().for_each(|digest| line(format!("part {digest}")));
    host.images.iter().for_each(|image| line(format!("image {image}")));
    for (name, unit) in &host.units {
        let running = match &unit.running {
            Some(with) if *with == host.unit_fingerprint(name, &unit.watches) => "running",
            Some(_) => "running with an older configuration",
            None => "stopped",
        };
        line(format!("unit {name} {} {running}", fingerprint(&unit.text)));
    }
    // The folder of a part decides whether the part exists. Its journal entry does not matter.
    let is_part = |id: &str| host.journal.get(id).is_some_and(|entry| matches!(entry.op, Op::Part { .. }));
    for entry in host.facts(state.now).journal.into_iter().filter(|entry| !is_part(&entry.id)) {
        line(format!("journal {} {} {:?}", entry.id, entry.digest, entry.state));
    }
    if let Some(cluster) = state.cluster_facts(host.address) {
        line(format!("reports {cluster:?}"));
    }
}
