//! The output of a decision: writes, events, and objects to read.

use k8s_openapi::jiff::Timestamp;

use crate::object::{NewObject, ObjectPatch, StatusPatch};

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// `Cluster`.
    Cluster,
    /// `ClusterOperation`.
    Operation,
    /// `KubernetesCluster`.
    KubernetesCluster,
    /// `Job`.
    Job,
    /// `ConfigMap`.
    ConfigMap,
    /// `Secret`.
    Secret,
    /// The log of a pod. It can only be read.
    Log,
}

impl ObjectKind {
    /// The kind in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Operation => "ClusterOperation",
            Self::KubernetesCluster => "KubernetesCluster",
            Self::Job => "Job",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Log => "Pod",
        }
    }
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its namespace; empty for kinds that have none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// An object.
    pub fn new(kind: ObjectKind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

/// The change of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Create the object. An existing object with the same content, or the same owner for a Job, counts as
    /// created.
    Create(NewObject),
    /// A JSON merge patch. With a `resourceVersion` in it, only that version is changed.
    Merge(ObjectPatch),
    /// Remove an owner of a ConfigMap or Secret.
    Disown {
        /// The UID of the owner.
        owner: String,
    },
    /// A JSON merge patch of the status.
    Status(StatusPatch),
    /// Delete the object in the background, if it has this UID. A missing object counts as deleted.
    Delete {
        /// The UID; empty for any.
        uid: String,
    },
}

/// One write of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The reason, for the user.
    pub why: String,
    /// The object.
    pub target: ObjectRef,
    /// The change of the object.
    pub change: Change,
    /// The operation whose status reports a permanent refusal of the API server.
    pub operation: Option<String>,
}

impl Write {
    /// Whether it creates a Job.
    #[must_use]
    pub fn makes_a_job(&self) -> bool {
        self.target.kind == ObjectKind::Job && matches!(self.change, Change::Create(_))
    }

    /// Whether it writes a status.
    fn is_status(&self) -> bool {
        matches!(self.change, Change::Status(_))
    }
}

/// The reasons of [`Notice`]s about failures. Their counters start at zero.
pub const FAILURES: [&str; 13] = [
    "Failed",
    "OperationFailed",
    "StepFailed",
    "PrecheckFailed",
    "CreateKubeJobFailed",
    "CreateScaleUpJobFailed",
    "CreateScaleDownJobFailed",
    "UpdateFailed",
    "RollbackFailed",
    "RenewFailed",
    "RepairFailed",
    "SnapshotFailed",
    "DeleteKubeJobFailed",
];

/// An event for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The object of the event.
    pub about: ObjectRef,
    /// The object whose write the event belongs to. It is recorded after that write, because then the write
    /// is not planned again.
    pub with: ObjectRef,
    /// The object's UID.
    pub uid: String,
    /// Whether the event is a warning.
    pub warning: bool,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// The message for the user.
    pub text: String,
}

impl Notice {
    /// The same event, recorded with the write of another object.
    #[must_use]
    pub fn with(self, with: ObjectRef) -> Self {
        Self { with, ..self }
    }
}

/// Writes, events, and the time of the next reconcile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterChanges {
    /// Stages of writes. The writes of one stage are sent at the same time; a stage begins after the previous
    /// one succeeded.
    pub stages: Vec<Vec<Write>>,
    /// Events, each recorded after its write.
    pub notices: Vec<Notice>,
    /// When to reconcile again even if nothing changes.
    pub wake: Option<Timestamp>,
}

impl ClusterChanges {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stages.iter().all(Vec::is_empty)
    }

    /// Takes the writes of stage `at`, each with the events that are recorded after it. A successful write is
    /// not planned again, so its events must not be lost when a write beside or after it fails. When two
    /// stages write the same object, the events belong to the write of its status.
    pub fn take(&mut self, at: usize) -> Vec<(Write, Vec<Notice>)> {
        let Some(stage) = self.stages.get_mut(at).map(std::mem::take) else { return Vec::new() };
        let later: Vec<&ObjectRef> = self
            .stages
            .iter()
            .flatten()
            .filter(|write| write.is_status())
            .map(|write| &write.target)
            .collect();
        let mut taken = Vec::new();
        for write in stage {
            let has_events = write.is_status() || !later.contains(&&write.target);
            let due = |notice: &mut Notice| has_events && notice.with == write.target;
            let notices = self.notices.extract_if(.., due).collect();
            taken.push((write, notices));
        }
        taken
    }

    /// Keeps only the first stage that writes something, with its events. The rest is planned again.
    pub fn keep_first_stage(&mut self) {
        self.stages.retain(|stage| !stage.is_empty());
        for at in 1..self.stages.len() {
            self.take(at);
        }
        self.stages.truncate(1);
    }

    /// Merges `other` stage by stage.
    pub fn merge(&mut self, other: Self) {
        for (at, writes) in other.stages.into_iter().enumerate() {
            match self.stages.get_mut(at) {
                Some(stage) => stage.extend(writes),
                None => self.stages.push(writes),
            }
        }
        self.notices.extend(other.notices);
        self.wake_at(other.wake);
    }

    /// Reconciles again at `when`, or at the time that is already set if that is earlier.
    pub fn wake_at(&mut self, when: Option<Timestamp>) {
        self.wake = [self.wake, when].into_iter().flatten().min();
    }

    /// The changes with one write.
    #[must_use]
    pub fn of(write: Write) -> Self {
        Self { stages: vec![vec![write]], ..Self::default() }
    }
}

/// The next step for a queue key.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Read these objects, then decide again.
    Read(Vec<ObjectRef>),
    /// Write these changes. When something was written, decide again.
    Apply(ClusterChanges),
}

impl From<Result<ClusterChanges, NeedsReads>> for Decision {
    fn from(result: Result<ClusterChanges, NeedsReads>) -> Self {
        match result {
            Ok(changes) => Self::Apply(changes),
            Err(NeedsReads(targets)) => Self::Read(targets),
        }
    }
}

/// The objects that must be read before a decision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NeedsReads(pub Vec<ObjectRef>);

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, change: Change) -> Write {
        Write {
            why: String::new(),
            target: ObjectRef::new(ObjectKind::Operation, "", name),
            change,
            operation: None,
        }
    }

    fn status(name: &str) -> Write {
        write(name, Change::Status(StatusPatch::default()))
    }

    fn notice(about: &str, with: &str) -> Notice {
        let (about, with) = (
            ObjectRef::new(ObjectKind::Operation, "", about),
            ObjectRef::new(ObjectKind::Operation, "", with),
        );
        Notice { about, with, uid: String::new(), warning: false, reason: "Told", text: String::new() }
    }

    /// The names of the objects in the events of each write of a stage.
    fn events_of(changes: &mut ClusterChanges, at: usize) -> Vec<Vec<String>> {
        let name = |notice: Notice| notice.about.name;
        changes.take(at).into_iter().map(|(_, notices)| notices.into_iter().map(name).collect()).collect()
    }

    #[test]
    fn an_event_belongs_to_its_write_and_to_no_other_write() {
        let meta = write("a", Change::Merge(ObjectPatch::default()));
        let stages = vec![vec![meta, status("b")], vec![status("a")]];
        let notices = vec![notice("a", "a"), notice("b", "b"), notice("of b", "b")];
        let mut changes = ClusterChanges { stages, notices, wake: None };
        assert_eq!(
            events_of(&mut changes, 0),
            [vec![], vec!["b", "of b"]],
            "the events belong to the write of the status, not of the annotation"
        );
        assert_eq!(events_of(&mut changes, 1), [["a"]]);
        assert!(changes.notices.is_empty());
    }

    #[test]
    fn events_of_removed_stages_are_removed_with_them() {
        let stages = vec![vec![], vec![status("a")], vec![status("b")]];
        let mut changes =
            ClusterChanges { stages, notices: vec![notice("a", "a"), notice("b", "b")], wake: None };
        changes.keep_first_stage();
        assert_eq!(events_of(&mut changes, 0), [["a"]]);
        assert!(changes.is_done() && changes.notices.is_empty());
    }
}
