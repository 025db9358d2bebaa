//! The state of a host from before kubeon changed it, as far as no file of the host holds it: kernel
//! parameters, and the tables of iptables. A reset restores it.
//!
//! ```text
//!   prepare ─► values that will change ─► original.json ─► change       reset ─► original.json ─► restore
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use kubeon_wire::StepFailure;
use serde::{Deserialize, Serialize};

use crate::durable::{read_text, write_file};
use crate::failure::failed;
use crate::job::Job;
use crate::kernel_parameter::{same, set, value_of};
use crate::packet_tables;
use crate::paths;
use crate::root::Root;

const FORWARD: &str = "net.ipv4.ip_forward";

/// The kernel turns this parameter off when forwarding is turned on, and on when it is turned off.
const REDIRECTS: (&str, &str) = ("net.ipv4.conf.all.accept_redirects", "0");

/// Parameters that the kubelet and kube-proxy set, with their values.
const SET_BY_AGENTS: [(&str, &str); 5] = [
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.keys.root_maxbytes", "25000000"),
    ("net.ipv4.conf.all.route_localnet", "1"),
    ("net.netfilter.nf_conntrack_tcp_timeout_established", "86400"),
    ("net.netfilter.nf_conntrack_tcp_timeout_close_wait", "3600"),
];

/// kube-proxy sets it to a value that depends on the number of processors.
const CONNTRACK: &str = "net.netfilter.nf_conntrack_max";

/// The recorded state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Original {
    /// Kernel parameters by name.
    parameters: BTreeMap<String, ParameterChange>,
    /// The tables of iptables that existed; `None` if they could not be listed.
    tables: Option<BTreeSet<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ParameterChange {
    /// The value before the change.
    original: String,
    /// The value after the change. A parameter with another value was changed by another program.
    set: String,
    /// The value of the change before, which it still has if the last change did not come to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    earlier: Option<String>,
}

impl ParameterChange {
    /// Whether the parameter has a value that the cluster set.
    fn holds(&self, now: &str) -> bool {
        same(now, &self.set) || self.earlier.as_deref().is_some_and(|earlier| same(now, earlier))
    }
}

impl Original {
    /// Records the current value of a parameter, unless it is recorded already or will not change.
    fn add(&mut self, root: &Root, name: &str, set: &str) {
        if let Some(known) = self.parameters.get_mut(name) {
            if !same(&known.set, set) {
                known.earlier = Some(std::mem::replace(&mut known.set, set.to_owned()));
            }
        } else if value_of(root, name).is_some_and(|now| !same(&now, set)) {
            self.add_always(root, name, set);
        }
    }

    /// Records the current value of a parameter, unless it is recorded already.
    fn add_always(&mut self, root: &Root, name: &str, set: &str) {
        if let Some(original) = value_of(root, name) {
            let change = ParameterChange { original, set: set.to_owned(), earlier: None };
            self.parameters.entry(name.to_owned()).or_insert(change);
        }
    }
}

/// Records the values that the parameters have now and that a cluster will change. Values that are recorded
/// already stay. Call it before the first change.
///
/// # Errors
/// If the record cannot be read or written.
pub fn remember(job: &Job<'_>, parameters: &BTreeMap<String, String>) -> Result<(), StepFailure> {
    let root = &job.host.root;
    let recorded = read(root)?;
    let mut original = recorded.clone().unwrap_or_default();
    for (name, value) in parameters {
        original.add(root, name, value);
    }
    if recorded.is_none() {
        if original.parameters.contains_key(FORWARD) {
            // The kernel also changes a value that was off, when forwarding is turned off again.
            original.add_always(root, REDIRECTS.0, REDIRECTS.1);
        }
        for (name, value) in SET_BY_AGENTS {
            original.add(root, name, value);
        }
        original.add(root, CONNTRACK, &conntrack_max().to_string());
        original.tables = if root.is_live() { packet_tables::list(job.deadline) } else { None };
    }
    if recorded.as_ref() == Some(&original) {
        return Ok(());
    }
    write(root, &original)
}

fn write(root: &Root, original: &Original) -> Result<(), StepFailure> {
    let text = serde_json::to_vec(original)
        .map_err(|error| failed(format!("cannot encode the original state of the host: {error}")))?;
    write_file(&root.at(paths::ORIGINAL), &text, 0o600)
}

/// Restores parameters that the cluster does not set any more, and forgets them. Returns whether one got another value.
///
/// # Errors
/// If the record cannot be read or written.
pub fn restore_dropped(job: &Job<'_>, names: &[&str]) -> Result<bool, StepFailure> {
    let root = &job.host.root;
    let Some(mut original) = read(root)?.filter(|_| !names.is_empty()) else { return Ok(false) };
    let (mut restored, before) = (false, original.parameters.len());
    for name in names {
        let Some(change) = original.parameters.remove(*name) else { continue };
        if value_of(root, name).is_some_and(|now| change.holds(&now)) {
            restored |= restore(job, name, &change);
        }
    }
    if original.parameters.len() < before {
        write(root, &original)?;
    }
    Ok(restored)
}

/// Gives a parameter the value from before the cluster. A value that the kernel refuses is noted.
fn restore(job: &Job<'_>, name: &str, change: &ParameterChange) -> bool {
    let why = match set(&job.host.root, name, &change.original) {
        Ok(changed) => return changed,
        Err(why) => why,
    };
    job.note(format!("the kernel parameter {name} stays {}, it was {}: {why}", change.set, change.original));
    false
}

/// The value that kube-proxy sets by default: 32768 connections per processor, at least 131072.
fn conntrack_max() -> usize {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (processors * 32_768).max(131_072)
}

/// Restores the parameters that still have the value that the cluster set. A value that the kernel refuses is
/// noted.
///
/// # Errors
/// If the record cannot be read.
pub fn restore_parameters(job: &Job<'_>) -> Result<(), StepFailure> {
    let root = &job.host.root;
    let parameters = read(root)?.unwrap_or_default().parameters;
    let changed = |(name, change): &(String, ParameterChange)| {
        value_of(root, name).is_some_and(|now| change.holds(&now))
    };
    // Forwarding comes first, because changing it changes other parameters.
    let (first, rest): (Vec<_>, Vec<_>) =
        parameters.into_iter().filter(changed).partition(|(name, _)| name == FORWARD);
    for (name, change) in first.into_iter().chain(rest) {
        restore(job, &name, &change);
    }
    Ok(())
}

/// The tables of iptables from before the cluster; `None` if they are not known.
///
/// # Errors
/// If the record cannot be read.
pub fn tables(root: &Root) -> Result<Option<BTreeSet<String>>, StepFailure> {
    Ok(read(root)?.and_then(|original| original.tables))
}

fn read(root: &Root) -> Result<Option<Original>, StepFailure> {
    let Some(text) = read_text(&root.at(paths::ORIGINAL))? else { return Ok(None) };
    let damaged = |error| {
        let path = paths::ORIGINAL;
        failed(format!("{path} is damaged ({error}); without this file nothing of it is restored: remove it"))
    };
    serde_json::from_str(&text).map(Some).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    const PANIC: &str = "kernel.panic";

    fn wanted() -> BTreeMap<String, String> {
        [(FORWARD, "1"), (PANIC, "10")].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn write(bench: &Bench, name: &str, value: &str) {
        bench.write(&format!("/proc/sys/{}", name.replace('.', "/")), value);
    }

    fn value(bench: &Bench, name: &str) -> String {
        value_of(&bench.host.root, name).unwrap()
    }

    /// A host on which the kernel and the agents behave as on a real one.
    fn changed() -> Bench {
        let bench = Bench::new();
        for (name, value) in [(FORWARD, "0\n"), (PANIC, "0\n"), (REDIRECTS.0, "1"), (CONNTRACK, "7\n")] {
            write(&bench, name, value);
        }
        write(&bench, SET_BY_AGENTS[0].0, "200");
        remember(&bench.job(), &wanted()).unwrap();
        for (name, value) in [(FORWARD, "1"), (PANIC, "10"), REDIRECTS, SET_BY_AGENTS[0]] {
            write(&bench, name, value);
        }
        write(&bench, CONNTRACK, &conntrack_max().to_string());
        bench
    }

    #[test]
    fn restores_what_the_cluster_and_its_agents_changed() {
        let bench = changed();
        restore_parameters(&bench.job()).unwrap();
        let names = [FORWARD, PANIC, REDIRECTS.0, CONNTRACK, SET_BY_AGENTS[0].0];
        assert_eq!(names.map(|name| value(&bench, name)), ["0", "0", "1", "7", "200"]);
        assert!(bench.output().is_empty(), "{}", bench.output());
    }

    #[test]
    fn a_change_that_did_not_come_to_its_end_is_restored() {
        let bench = changed();
        let again = [(FORWARD, "1"), (PANIC, "20")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        remember(&bench.job(), &again.into()).unwrap();
        restore_parameters(&bench.job()).unwrap();
        assert_eq!(value(&bench, PANIC), "0", "it has the value before the last one");
    }

    #[test]
    fn redirects_that_the_owner_refuses_are_refused_again() {
        let bench = Bench::new();
        for (name, value) in [(FORWARD, "0\n"), (REDIRECTS.0, "0\n")] {
            write(&bench, name, value);
        }
        remember(&bench.job(), &wanted()).unwrap();
        let recorded = read(&bench.host.root).unwrap().unwrap().parameters;
        assert_eq!(recorded[REDIRECTS.0].original.trim(), "0", "the kernel accepts them with forwarding off");
    }

    #[test]
    fn the_first_value_is_kept_when_a_step_is_repeated() {
        let bench = changed();
        remember(&bench.job(), &wanted()).unwrap();
        write(&bench, PANIC, "3");
        remember(&bench.job(), &wanted()).unwrap();
        write(&bench, PANIC, "10");
        restore_parameters(&bench.job()).unwrap();
        assert_eq!(value(&bench, PANIC), "0");
    }

    #[test]
    fn a_parameter_that_another_program_changed_is_kept() {
        let bench = changed();
        write(&bench, PANIC, "60");
        restore_parameters(&bench.job()).unwrap();
        assert_eq!((value(&bench, PANIC), value(&bench, FORWARD)), ("60".to_owned(), "0".to_owned()));
    }

    #[test]
    fn a_host_without_a_record_keeps_its_parameters() {
        let bench = Bench::new();
        write(&bench, FORWARD, "1");
        restore_parameters(&bench.job()).unwrap();
        assert_eq!(value(&bench, FORWARD), "1");
        assert_eq!(tables(&bench.host.root).unwrap(), None);
    }

    #[test]
    fn a_damaged_record_is_an_error_that_names_the_file() {
        let bench = changed();
        bench.write(paths::ORIGINAL, "{");
        assert!(restore_parameters(&bench.job()).unwrap_err().cause.contains(paths::ORIGINAL));
        assert!(remember(&bench.job(), &wanted()).is_err());
    }
}
