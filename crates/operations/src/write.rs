//! The output of a decision: writes, events, and objects to read.

use k8s_openapi::jiff::Timestamp;

use crate::object::{NewObject, ObjectPatch, StatusPatch};

/// What kind of object.
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
    /// The kind's name on the wire.
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

/// How an object is changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Made. One that exists already is read and taken for it when it is the same: content, or owner for a Job.
    Create(NewObject),
    /// A JSON merge patch. With a `resourceVersion` in it, only that version is changed.
    Merge(ObjectPatch),
    /// A strategic merge patch; only for kinds that Kubernetes itself has.
    Strategic(ObjectPatch),
    /// A JSON merge patch of the status.
    Status(StatusPatch),
    /// Removed, in the background, when it still has this UID. One that is gone is as wanted.
    Delete {
        /// The UID; any when empty.
        uid: String,
    },
}

/// One change of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Why, for a person.
    pub why: String,
    /// The object.
    pub target: ObjectRef,
    /// What is done to it.
    pub change: Change,
    /// The operation that is told when the API server refuses this for good.
    pub operation: Option<String>,
}

impl Write {
    /// Whether work begins with it.
    #[must_use]
    pub fn makes_a_job(&self) -> bool {
        self.target.kind == ObjectKind::Job && matches!(self.change, Change::Create(_))
    }

    /// Whether it is a status.
    fn says(&self) -> bool {
        matches!(self.change, Change::Status(_))
    }
}

/// The reasons of [`Notice`]s that something failed, so that they can be counted from nought.
pub const FAILURES: [&str; 8] = [
    "Failed",
    "OperationFailed",
    "StepFailed",
    "PrecheckFailed",
    "CreateKubeJobFailed",
    "CreateScaleUpJobFailed",
    "CreateScaleDownJobFailed",
    "DeleteKubeJobFailed",
];

/// What people are told by an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The object that it is about.
    pub about: ObjectRef,
    /// The object whose write it belongs to: told when that is done, by then it is not planned again.
    pub with: ObjectRef,
    /// The object's UID.
    pub uid: String,
    /// Whether somebody should look at it.
    pub warning: bool,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// For a person.
    pub text: String,
}

impl Notice {
    /// The same, told with a write of another object than the one that it is about.
    #[must_use]
    pub fn with(self, with: ObjectRef) -> Self {
        Self { with, ..self }
    }
}

/// Writes and when to look again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterChanges {
    /// Sets of writes, one after the other; those of one set side by side. What follows a set that did not succeed is
    /// not done.
    pub stages: Vec<Vec<Write>>,
    /// Each told when the write that it belongs to is done.
    pub notices: Vec<Notice>,
    /// When something may be due though nothing changed.
    pub wake: Option<Timestamp>,
}

impl ClusterChanges {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stages.iter().all(Vec::is_empty)
    }

    /// Takes the writes of stage `at`, each with what is told as soon as it is done. What was written is not planned again,
    /// so what it tells must not be lost with the writes beside it or after it. Of two writes of one object, that of the
    /// status tells.
    pub fn take(&mut self, at: usize) -> Vec<(Write, Vec<Notice>)> {
        let Some(stage) = self.stages.get_mut(at).map(std::mem::take) else { return Vec::new() };
        let later: Vec<&ObjectRef> =
            self.stages.iter().flatten().filter(|write| write.says()).map(|it| &it.target).collect();
        let mut taken = Vec::new();
        for write in stage {
            let tells = write.says() || !later.contains(&&write.target);
            let due = |notice: &mut Notice| tells && notice.with == write.target;
            let told = self.notices.extract_if(.., due).collect();
            taken.push((write, told));
        }
        taken
    }

    /// Leaves the first stage that writes something, and what is told with it: the rest is planned again.
    pub fn cut(&mut self) {
        self.stages.retain(|stage| !stage.is_empty());
        for at in 1..self.stages.len() {
            self.take(at);
        }
        self.stages.truncate(1);
    }

    /// Does `other` beside this: first stages together, then second ones.
    pub fn beside(&mut self, other: Self) {
        for (at, writes) in other.stages.into_iter().enumerate() {
            match self.stages.get_mut(at) {
                Some(stage) => stage.extend(writes),
                None => self.stages.push(writes),
            }
        }
        self.notices.extend(other.notices);
        self.wake_at(other.wake);
    }

    /// Looks again at `when`, or earlier if that was wanted.
    pub fn wake_at(&mut self, when: Option<Timestamp>) {
        self.wake = [self.wake, when].into_iter().flatten().min();
    }

    /// A turn of one write.
    #[must_use]
    pub fn of(write: Write) -> Self {
        Self { stages: vec![vec![write]], ..Self::default() }
    }
}

/// What an operator does next for a queue key.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Read these objects, then decide again.
    Read(Vec<ObjectRef>),
    /// Write these changes; when something was written, decide again.
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

/// Nothing can be decided before these objects are read.
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

    /// What is told with each write of a stage: the objects that it is about.
    fn told(changes: &mut ClusterChanges, at: usize) -> Vec<Vec<String>> {
        let name = |notice: Notice| notice.about.name;
        changes.take(at).into_iter().map(|(_, told)| told.into_iter().map(name).collect()).collect()
    }

    #[test]
    fn a_notice_is_told_with_its_write_whatever_becomes_of_the_others() {
        let meta = write("a", Change::Merge(ObjectPatch::default()));
        let stages = vec![vec![meta, status("b")], vec![status("a")]];
        let notices = vec![notice("a", "a"), notice("b", "b"), notice("of b", "b")];
        let mut changes = ClusterChanges { stages, notices, wake: None };
        assert_eq!(
            told(&mut changes, 0),
            [vec![], vec!["b", "of b"]],
            "the status tells, not the annotation"
        );
        assert_eq!(told(&mut changes, 1), [["a"]]);
        assert!(changes.notices.is_empty());
    }

    #[test]
    fn what_is_cut_off_is_told_when_it_is_planned_again() {
        let stages = vec![vec![], vec![status("a")], vec![status("b")]];
        let mut changes =
            ClusterChanges { stages, notices: vec![notice("a", "a"), notice("b", "b")], wake: None };
        changes.cut();
        assert_eq!(told(&mut changes, 0), [["a"]]);
        assert!(changes.is_done() && changes.notices.is_empty());
    }
}
