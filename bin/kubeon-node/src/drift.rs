//! Checks whether the results of steps still exist. It changes nothing. A result that cannot be checked is
//! assumed to be up to date, because the planner needs a reason to repeat a step.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use kubeon_wire::{ResultState, StepFailure};

use crate::api::Api;
use crate::durable::{lstat, read_text, sha256};
use crate::failure::Doing;
use crate::host::HostSystem;
use crate::journal::{Entry, Mark};
use crate::kernel_parameter::{same, value_of};
use crate::ops::{hosts, image, service, swap};
use crate::systemd::UnitState;
use crate::{parts, paths, units};

/// The time limit for one answer of containerd or the API server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for all requests to the API server.
const OBJECTS_TIMEOUT: Duration = Duration::from_secs(20);

/// The status of units, images and objects, read once to check many steps.
pub struct DriftCheck<'a> {
    host: &'a HostSystem,
    units: Option<BTreeMap<String, UnitState>>,
    images: Images,
    objects: BTreeMap<String, bool>,
    unchecked: Vec<String>,
}

/// What differs from the records of the steps, one text for each result: files, links, unit files, kernel parameters, swap
/// and the block in the hosts file. Only the host is read. Whether a unit runs, and parts, images and objects of the API are not
/// checked. A result that several steps recorded differs only from all of them: a step that a later version named
/// differently stays in the journal.
#[must_use]
pub fn changed_results(host: &HostSystem, entries: &[Entry]) -> Vec<String> {
    let (units, images) = (None, Images::Unknown);
    let check = DriftCheck { host, units, images, objects: BTreeMap::new(), unchecked: Vec::new() };
    let mut results: BTreeMap<&str, Vec<&Mark>> = BTreeMap::new();
    for mark in entries.iter().flat_map(|entry| &entry.marks) {
        if let Some(name) = result_on_host(mark) {
            results.entry(name).or_default().push(mark);
        }
    }
    results.values().filter_map(|marks| check.drift_from_all(marks)).collect()
}

/// The name of a result that only the host has.
fn result_on_host(mark: &Mark) -> Option<&str> {
    match mark {
        Mark::File { path, .. } | Mark::Link { path, .. } => Some(path),
        Mark::Unit { name, .. } | Mark::Parameter { name, .. } => Some(name),
        Mark::NoSwap => Some("swap"),
        Mark::HostsBlock { .. } => Some("hosts"),
        Mark::Part { .. } | Mark::Image { .. } | Mark::Object { .. } => None,
    }
}

enum Images {
    Known(BTreeSet<String>),
    NoProgram,
    Unknown,
}

impl<'a> DriftCheck<'a> {
    /// Reads the status of everything that the entries name, in parallel.
    #[must_use]
    pub fn read(host: &'a HostSystem, entries: &[&Entry]) -> Self {
        let marks = || entries.iter().flat_map(|entry| &entry.marks);
        let names: Vec<String> = marks().filter_map(unit_name).collect();
        let paths: Vec<String> = marks().filter_map(object_path).collect();
        let wants_images = marks().any(|mark| matches!(mark, Mark::Image { .. }));
        std::thread::scope(|scope| {
            let images = wants_images.then(|| scope.spawn(|| read_images(host)));
            let objects = (!paths.is_empty()).then(|| scope.spawn(|| read_objects(host, &paths)));
            let units = host.services.states(&names).ok();
            let images = images.map(|thread| thread.join().unwrap_or(Images::Unknown));
            let objects = objects.map(|thread| thread.join().unwrap_or_default()).unwrap_or_default();
            let missed = [
                (!names.is_empty() && units.is_none(), "systemd did not report the status of its units"),
                (matches!(images, Some(Images::Unknown)), "containerd did not list its images"),
                (
                    objects.len() < paths.iter().collect::<BTreeSet<_>>().len(),
                    "the API server did not return all objects",
                ),
            ];
            let missed = missed.into_iter().filter(|(missed, _)| *missed);
            let unchecked = missed.map(|(_, problem)| format!("{problem} in time; assumed up to date"));
            let (images, unchecked) = (images.unwrap_or(Images::Unknown), unchecked.collect());
            Self { host, units, images, objects, unchecked }
        })
    }

    /// Texts about the checks that did not finish in time.
    #[must_use]
    pub fn unchecked(&self) -> Vec<String> {
        self.unchecked.clone()
    }

    /// Whether every result of the step is still there.
    #[must_use]
    pub fn state_of(&self, entry: &Entry) -> ResultState {
        for mark in &entry.marks {
            if let Some(why) = self.stopped(mark) {
                return ResultState::Stopped(why);
            }
            match self.drift(mark) {
                Ok(None) => {}
                Ok(Some(why)) => return ResultState::Drifted(why),
                Err(failure) => return ResultState::Drifted(failure.cause),
            }
        }
        ResultState::UpToDate
    }

    /// How a result differs from its first record; `None` if it is as one of them says.
    fn drift_from_all(&self, records: &[&Mark]) -> Option<String> {
        let mut first = None;
        for mark in records {
            let why = self.drift(mark).unwrap_or_else(|failure| Some(failure.cause))?;
            first = first.or(Some(why));
        }
        first
    }

    fn drift(&self, mark: &Mark) -> Result<Option<String>, StepFailure> {
        let root = &self.host.root;
        match mark {
            Mark::File { path, sha256, mode } => self.file_drift(path, sha256, *mode),
            Mark::Link { path, target } => {
                let place = root.given(path)?;
                let now = fs::read_link(&place).ok();
                let points = now.as_deref() == Some(std::path::Path::new(target));
                Ok((!points).then(|| format!("{path} does not point at {target}")))
            }
            Mark::Part { digest } => {
                let whole =
                    digest.parse().is_ok_and(|digest| parts::is_whole(root, &digest).unwrap_or(false));
                Ok((!whole).then(|| format!("part {digest:.12} is missing or changed")))
            }
            Mark::Parameter { name, value } => {
                let now = value_of(root, name).unwrap_or_default();
                Ok((!same(&now, value)).then(|| format!("{name} is {now:?}, not {value:?}")))
            }
            Mark::NoSwap => {
                let used = swap::in_use(root)?;
                Ok((!used.is_empty()).then(|| format!("swap is on: {}", used.join(", "))))
            }
            Mark::HostsBlock { sha256 } => {
                Ok((hosts::block_sha256(root)? != *sha256)
                    .then(|| "the block in /etc/hosts changed".to_owned()))
            }
            Mark::Unit { name, sha256, watches } => self.unit_drift(name, sha256, watches),
            Mark::Image { name } => Ok(match &self.images {
                Images::Known(names) if !names.contains(name) => Some(format!("image {name} is missing")),
                Images::NoProgram => Some("containerd's program ctr is missing".to_owned()),
                _ => None,
            }),
            Mark::Object { path } => {
                let absent = self.objects.get(path) == Some(&false);
                Ok(absent.then(|| format!("the object {path} is missing")))
            }
        }
    }

    fn file_drift(&self, path: &str, wanted: &str, mode: u32) -> Result<Option<String>, StepFailure> {
        let place = self.host.root.given(path)?;
        let Some(found) = lstat(&place)? else { return Ok(Some(format!("{path} is missing"))) };
        if !found.is_file() {
            return Ok(Some(format!("{path} is not a regular file")));
        }
        let now = found.permissions().mode() & 0o7777;
        if now != mode & 0o7777 {
            return Ok(Some(format!("{path} has mode {now:o}, not {mode:o}")));
        }
        let same = sha256(&fs::read(&place).doing("read", &place)?) == wanted;
        Ok((!same).then(|| format!("{path} was changed")))
    }

    fn unit_drift(
        &self,
        name: &str,
        wanted: &str,
        watches: &[String],
    ) -> Result<Option<String>, StepFailure> {
        let root = &self.host.root;
        let Some(text) = read_text(&units::file(root, name))? else {
            return Ok(Some(format!("{name} has no unit file")));
        };
        if sha256(text.as_bytes()) != wanted {
            return Ok(Some(format!("the unit file of {name} was changed")));
        }
        if units::wants(root, name, &text).iter().any(|link| !link.is_symlink()) {
            return Ok(Some(format!("{name} is not enabled")));
        }
        if !units::is_current(root, name, &text, watches)? {
            return Ok(Some(format!("{name} was not restarted after a file that it reads changed")));
        }
        Ok(None)
    }

    /// Why the service of the mark does not do its work, whatever else changed; `None` if systemd did not tell.
    fn stopped(&self, mark: &Mark) -> Option<String> {
        let Mark::Unit { name, .. } = mark else { return None };
        let state = self.units.as_ref()?.get(name)?;
        let text = read_text(&units::file(&self.host.root, name)).ok()??;
        (!service::is_up(&text, state)).then(|| format!("{name} is {}", state.verdict()))
    }
}

fn unit_name(mark: &Mark) -> Option<String> {
    if let Mark::Unit { name, .. } = mark { Some(name.clone()) } else { None }
}

fn object_path(mark: &Mark) -> Option<String> {
    if let Mark::Object { path } = mark { Some(path.clone()) } else { None }
}

fn read_images(host: &HostSystem) -> Images {
    if !host.root.at(paths::CTR).exists() {
        return Images::NoProgram;
    }
    image::known(host, Instant::now() + ANSWER_TIMEOUT, false).map_or(Images::Unknown, Images::Known)
}

/// Whether each object exists. The result has no entry for an object without an answer from the API server.
fn read_objects(host: &HostSystem, paths: &[String]) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    let Ok(api) = Api::local(host) else { return found };
    let end = Instant::now() + OBJECTS_TIMEOUT;
    for path in paths.iter().take_while(|_| Instant::now() < end) {
        match api.get(path, ANSWER_TIMEOUT) {
            Ok(answer) if answer.status == 404 => found.insert(path.clone(), false),
            Ok(_) => found.insert(path.clone(), true),
            // The API server does not answer: the other objects cannot be read either.
            Err(_) => return found,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::StepEffect;
    use crate::ops::service::Service;
    use crate::ops::{files, links};
    use crate::testing::Bench;
    use kubeon_wire::{Content, File, Link};

    fn state_of(bench: &Bench, effect: &StepEffect) -> ResultState {
        let entry = Entry { id: "x".into(), digest: "d".into(), marks: effect.marks.clone() };
        DriftCheck::read(&bench.host, &[&entry]).state_of(&entry)
    }

    fn assert_drifted(bench: &Bench, effect: &StepEffect, word: &str) {
        match state_of(bench, effect) {
            ResultState::Drifted(why) | ResultState::Stopped(why) => assert!(why.contains(word), "{why}"),
            ResultState::UpToDate => panic!("up to date, expected: {word}"),
        }
    }

    #[test]
    fn detects_a_changed_file() {
        let bench = Bench::new();
        let file = File { path: "/etc/x".into(), mode: 0o644, content: Content::Text("a".into()) };
        let effect = files::run(&bench.job(), &[file]).unwrap();
        assert_eq!(state_of(&bench, &effect), ResultState::UpToDate);
        bench.write("/etc/x", "b");
        assert_drifted(&bench, &effect, "/etc/x was changed");
        bench.write("/etc/x", "a");
        fs::set_permissions(bench.host.root.at("/etc/x"), fs::Permissions::from_mode(0o666)).unwrap();
        assert_drifted(&bench, &effect, "mode 666");
        fs::remove_file(bench.host.root.at("/etc/x")).unwrap();
        assert_drifted(&bench, &effect, "/etc/x is missing");
    }

    #[test]
    fn detects_swap_that_is_on_again() {
        let bench = Bench::new();
        let table = "Filename Type Size Used Priority\n";
        bench.write("/proc/swaps", table);
        bench.write("/run/systemd/generator/dev-zram0.swap", "[Swap]\nWhat=/dev/zram0\n");
        let effect = swap::off(&bench.job()).unwrap();
        assert_eq!(state_of(&bench, &effect), ResultState::UpToDate);
        bench.write("/proc/swaps", &format!("{table}/dev/zram0 partition 4096 0 100\n/swap file 9 0 -2\n"));
        assert_drifted(&bench, &effect, "swap is on: /dev/zram0, /swap");
        bench.write("/proc/swaps", table);
        fs::remove_dir_all(bench.host.root.at("/etc/systemd/system/dev-zram0.swap.d")).unwrap();
        assert_drifted(&bench, &effect, "dev-zram0.swap.d/kubeon.conf is missing");
    }

    #[test]
    fn detects_a_link_with_another_target() {
        let bench = Bench::new();
        let link = |target: &str| Link { path: "/usr/local/bin/k".into(), target: target.into() };
        let effect = links::run(&bench.job(), &[link("/var/lib/kubeon/a")]).unwrap();
        assert_eq!(state_of(&bench, &effect), ResultState::UpToDate);
        links::run(&bench.job(), &[link("/var/lib/kubeon/b")]).unwrap();
        assert_drifted(&bench, &effect, "does not point at /var/lib/kubeon/a");
    }

    #[test]
    fn detects_a_unit_that_stopped_or_changed_or_reads_a_changed_file() {
        let bench = Bench::new();
        bench.write("/etc/c", "1");
        let unit = "[Service]\nType=notify\n[Install]\nWantedBy=multi-user.target\n";
        let watches = ["/etc/c".to_owned()];
        let service = Service { name: "x.service", unit, watches: &watches, ready: &[] };
        let effect = service::run(&bench.job(), &service).unwrap();
        assert_eq!(state_of(&bench, &effect), ResultState::UpToDate);
        bench.services.running.lock().clear();
        assert_drifted(&bench, &effect, "x.service is inactive");
        service::run(&bench.job(), &service).unwrap();
        bench.write("/etc/c", "2");
        assert_drifted(&bench, &effect, "not restarted");
        service::run(&bench.job(), &service).unwrap();
        let link = bench.host.root.at("/etc/systemd/system/multi-user.target.wants/x.service");
        fs::remove_file(&link).unwrap();
        assert_drifted(&bench, &effect, "not enabled");
        bench.write("/etc/systemd/system/x.service", "other");
        assert_drifted(&bench, &effect, "unit file");
    }

    #[test]
    fn what_changed_on_the_host_is_named_once_for_each_result() {
        let bench = Bench::new();
        let file =
            |text: &str| File { path: "/etc/x".into(), mode: 0o644, content: Content::Text(text.into()) };
        let written = |text: &str| files::run(&bench.job(), &[file(text)]).unwrap().marks;
        let entry = |id: &str, marks| Entry { id: id.into(), digest: "d".into(), marks };
        let link = Link { path: "/usr/local/bin/k".into(), target: "/var/lib/kubeon/a".into() };
        let unit = "[Service]\nType=notify\n[Install]\nWantedBy=multi-user.target\n";
        let service = Service { name: "x.service", unit, watches: &[], ready: &[] };
        let entries = [
            // The name that an earlier version gave the step.
            entry("old/x@h1", written("a")),
            entry("new/x@h1", written("b")),
            entry("new/k@h1", links::run(&bench.job(), &[link]).unwrap().marks),
            entry("new/unit@h1", service::run(&bench.job(), &service).unwrap().marks),
            entry("new/image@h1", vec![Mark::Image { name: "pause".into() }]),
            entry("new/object@h1", vec![Mark::Object { path: "/api/v1/namespaces/x".into() }]),
        ];
        let changed = || changed_results(&bench.host, &entries);
        assert_eq!(changed(), [""; 0]);
        bench.services.running.lock().clear();
        assert_eq!(changed(), [""; 0], "other conditions tell what does not run");
        bench.write("/etc/x", "c");
        bench.write("/etc/systemd/system/x.service", "other");
        fs::remove_file(bench.host.root.at("/usr/local/bin/k")).unwrap();
        assert_eq!(
            changed(),
            [
                "/etc/x was changed",
                "/usr/local/bin/k does not point at /var/lib/kubeon/a",
                "the unit file of x.service was changed"
            ]
        );
    }

    #[test]
    fn detects_a_missing_object() {
        let mut bench = Bench::new();
        crate::testing_api::serve(&mut bench, |_, path, _| {
            crate::testing_api::Reply::Json(if path.ends_with("/gone") { 404 } else { 200 }, "{}".into())
        });
        let mark = |name: &str| Mark::Object { path: format!("/api/v1/namespaces/{name}") };
        let effect =
            |names: &[&str]| StepEffect { changed: true, marks: names.iter().map(|n| mark(n)).collect() };
        assert_eq!(state_of(&bench, &effect(&["x", "y"])), ResultState::UpToDate);
        assert_drifted(&bench, &effect(&["x", "gone"]), "/gone is missing");
    }

    #[test]
    fn assumes_that_an_object_is_up_to_date_when_the_api_server_does_not_answer() {
        let bench = Bench::new();
        let marks = vec![Mark::Object { path: "/api/v1/namespaces/x".into() }];
        assert_eq!(state_of(&bench, &StepEffect { changed: true, marks }), ResultState::UpToDate);
    }
}
