//! For tests: a host in a folder, with a fake service manager.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use kubeon_wire::StepFailure;
use parking_lot::Mutex;

use crate::events::Events;
use crate::host::HostSystem;
use crate::job::Job;
use crate::root::Root;
use crate::systemd::{NotStarted, Services, UnitState};
use crate::timeout_extension::TimeoutExtension;

/// The calls of the fake service manager, and the states that it reports.
#[derive(Default)]
pub(crate) struct FakeState {
    pub calls: Mutex<Vec<String>>,
    pub running: Mutex<BTreeSet<String>>,
    pub broken: Mutex<BTreeSet<String>>,
    /// Units that start and are not ready yet.
    pub starting: Mutex<BTreeSet<String>>,
    /// Units that cannot read their files again.
    pub refusing: Mutex<BTreeSet<String>>,
    /// When every unit was started, in microseconds of the monotonic clock.
    pub started: Mutex<u64>,
}

pub(crate) struct FakeServices(pub Arc<FakeState>);

impl Services for FakeServices {
    fn states(&self, units: &[String]) -> Result<BTreeMap<String, UnitState>, StepFailure> {
        let (running, broken) = (self.0.running.lock(), self.0.broken.lock());
        let state = |unit: &String| {
            let (active, sub) = match (running.contains(unit), broken.contains(unit)) {
                _ if self.0.starting.lock().contains(unit) => ("activating", "start"),
                (_, true) => ("failed", "failed"),
                (true, _) => ("active", "running"),
                _ => ("inactive", "dead"),
            };
            let result = if active == "failed" { "exit-code" } else { "success" };
            let word = str::to_owned;
            UnitState {
                load: word("loaded"),
                active: word(active),
                sub: word(sub),
                result: word(result),
                started: *self.0.started.lock(),
                ..UnitState::default()
            }
        };
        Ok(units.iter().map(|unit| (unit.clone(), state(unit))).collect())
    }

    fn reload(&self) -> Result<(), StepFailure> {
        self.0.calls.lock().push("reload".into());
        Ok(())
    }

    fn restart(&self, unit: &str, _: Instant) -> Result<(), NotStarted> {
        self.0.calls.lock().push(format!("restart {unit}"));
        if self.0.broken.lock().contains(unit) {
            return Err(NotStarted::Failed("exited".into()));
        }
        if self.0.starting.lock().contains(unit) {
            return Err(NotStarted::Timeout);
        }
        self.0.running.lock().insert(unit.into());
        Ok(())
    }

    fn reload_unit(&self, unit: &str, _: Instant) -> Result<(), StepFailure> {
        self.0.calls.lock().push(format!("reload {unit}"));
        if self.0.refusing.lock().contains(unit) {
            return Err(crate::failure::failed(format!("{unit} was not reloaded")));
        }
        Ok(())
    }

    fn stop(&self, units: &[String], _: Instant) -> Result<(), StepFailure> {
        for unit in units {
            self.0.calls.lock().push(format!("stop {unit}"));
            self.0.running.lock().remove(unit);
        }
        Ok(())
    }

    fn log(&self, unit: &str) -> Vec<String> {
        vec![format!("log of {unit}")]
    }
}

#[derive(Clone, Default)]
pub(crate) struct OutputBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for OutputBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutputBuffer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

/// A host in a temporary folder.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    pub host: HostSystem,
    pub services: Arc<FakeState>,
    events: Events,
    output: OutputBuffer,
    pub stop: AtomicBool,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let services = Arc::new(FakeState::default());
        let host = HostSystem::with_services(
            Root::new(folder.path()),
            Box::new(FakeServices(Arc::clone(&services))),
        );
        let output = OutputBuffer::default();
        let events = Events::with_writer(Box::new(output.clone()));
        Self { folder, host, services, events, output, stop: AtomicBool::new(false) }
    }

    pub(crate) fn job(&self) -> Job<'_> {
        let deadline = Instant::now() + Duration::from_secs(5);
        Job {
            host: &self.host,
            id: "h1/step",
            deadline,
            extension: TimeoutExtension::none(),
            events: &self.events,
            stop: &self.stop,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let place = self.host.root.at(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.host.root.at(path)).unwrap()
    }

    pub(crate) fn output(&self) -> String {
        self.output.text()
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.services.calls.lock())
    }
}
