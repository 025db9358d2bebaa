//! Hosts that kubeadm made nodes of a cluster, which kubeon takes over while the cluster runs.
//!
//! Their programs run already. A plan treats them as programs that kubeon started with other content: members of etcd change with a
//! quorum, masters one after another, and as many workers at a time as the user permits. So what is known of such a host is completed
//! with the steps that kubeadm did, until the journal of the host has these steps.

use std::borrow::Cow;

use kubeon_api::{HostAddress, HostName, HostRole};
use kubeon_wire::{Claim, Facts, JournalEntry, ResultState};

use crate::context::records;
use crate::desired::{control, control_plane, join};
use crate::input::{Intent, Observation, Snapshot};
use crate::quorum::member_id;
use crate::step_id::StepId;

/// The digest of a step that kubeadm did.
pub(crate) const MADE_BY_KUBEADM: &str = "kubeadm";
/// What the probe finds on every node of kubeadm that kubeon did not change yet.
const KUBELET_LOGIN: &str = "/etc/kubernetes/kubelet.conf";

/// The snapshot, with what kubeadm did on the hosts that are taken over.
#[must_use]
pub fn with_kubeadm_steps<'s>(intent: &Intent, snapshot: &'s Snapshot) -> Cow<'s, Snapshot> {
    if intent.taken_over.is_empty() {
        return Cow::Borrowed(snapshot);
    }
    let is_untouched = is_untouched(intent, snapshot);
    let mut completed = snapshot.clone();
    for (role, spec) in intent.spec.hosts_with_roles() {
        let Some(name) = &spec.name else { continue };
        let Some(Observation::Fresh(facts)) = completed.hosts.get_mut(&spec.address) else { continue };
        if !is_taken_over(intent, spec.address, facts) {
            continue;
        }
        complete(intent, &role, name, facts);
        if is_untouched && role.is_master() && facts.cluster_steps.is_none() {
            facts.cluster_steps = Some(Vec::new());
        }
    }
    Cow::Owned(completed)
}

/// Whether no master belongs to the cluster of kubeon yet: then the cluster records no step.
fn is_untouched(intent: &Intent, snapshot: &Snapshot) -> bool {
    let mut masters = intent
        .spec
        .masters
        .iter()
        .filter_map(|host| snapshot.hosts.get(&host.address).and_then(Observation::fresh));
    masters.all(|facts| facts.claim.is_none())
}

/// Whether kubeadm made the host a node of the cluster. A host that was installed again since is as any new one.
fn is_taken_over(intent: &Intent, host: HostAddress, facts: &Facts) -> bool {
    let is_node = match &facts.claim {
        Some(claim) => claim.uid == intent.uid,
        None => facts.foreign.iter().any(|path| path == KUBELET_LOGIN),
    };
    is_node && intent.taken_over.contains(&host)
}

/// Adds what kubeadm did to the facts of a host.
fn complete(intent: &Intent, role: &HostRole, name: &HostName, facts: &mut Facts) {
    let has_own_server = records(&facts.journal, &control_plane::apiserver_of(name));
    // The certificate of kubeadm's API server does not name the address at which the node program asks.
    let silent = facts.cluster.as_mut().filter(|cluster| !cluster.api_ready && !has_own_server);
    if let Some(cluster) = silent {
        cluster.api_unknown = true;
    }
    let missing = steps_of_kubeadm(role, name).into_iter().filter(|id| !records(&facts.journal, id));
    let missing: Vec<JournalEntry> = missing.map(|id| entry(&id)).collect();
    facts.journal.extend(missing);
    facts.foreign.clear();
    facts.own_services.clear();
    if facts.claim.is_none() {
        facts.claim = Some(Claim {
            cluster: intent.spec.name.clone(),
            uid: intent.uid.clone(),
            generation: 0,
            version: intent.spec.version,
            role: role.clone(),
        });
    }
}

/// The steps whose programs or keys kubeadm left on a host. kube-proxy is not among them: until the one of kubeon runs on every host,
/// that of kubeadm runs too.
fn steps_of_kubeadm(role: &HostRole, name: &HostName) -> Vec<StepId> {
    let mut ids = vec![join::runtime_of(name), join::kubelet_of(name)];
    if role.is_master() {
        ids.extend([member_id(name), control::keys_of(name)]);
        ids.extend(control_plane::ids_of(name));
    }
    ids
}

fn entry(id: &StepId) -> JournalEntry {
    let digest = MADE_BY_KUBEADM.to_owned();
    JournalEntry { id: id.to_string(), digest, state: ResultState::UpToDate }
}
