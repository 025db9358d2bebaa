//! What a plan consists of.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// What kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `Cluster`.
    Cluster,
    /// `ClusterOperation`.
    Operation,
    /// `KubernetesCluster`.
    Business,
    /// `Job`.
    Job,
    /// `ConfigMap`.
    ConfigMap,
    /// `Secret`.
    Secret,
    /// The log of a pod. It can only be read.
    Log,
}

impl Kind {
    /// The kind's name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Operation => "ClusterOperation",
            Self::Business => "KubernetesCluster",
            Self::Job => "Job",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Log => "Pod",
        }
    }
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for kinds that have none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Target {
    /// An object.
    pub fn new(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

/// How an object is changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Made. One that exists already is read and taken for it when it is the same: content, or owner for a Job.
    Create(Value),
    /// A JSON merge patch. With a `resourceVersion` in it, only that version is changed.
    Merge(Value),
    /// A strategic merge patch; only for kinds that Kubernetes itself has.
    Strategic(Value),
    /// A JSON merge patch of the status.
    Status(Value),
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
    pub target: Target,
    /// What is done to it.
    pub change: Change,
    /// The operation that is told when the API server refuses this for good.
    pub operation: Option<String>,
}

impl Write {
    /// Whether work begins with it.
    #[must_use]
    pub fn makes_a_job(&self) -> bool {
        self.target.kind == Kind::Job && matches!(self.change, Change::Create(_))
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
    pub about: Target,
    /// The object's UID.
    pub uid: String,
    /// Whether somebody should look at it.
    pub warning: bool,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// For a person.
    pub text: String,
}

/// Writes and when to look again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Turn {
    /// Sets of writes, one after the other; those of one set side by side. What follows a set that did not succeed is
    /// not done.
    pub stages: Vec<Vec<Write>>,
    /// Each told when the status of its object was written, or else when all of it was done.
    pub notices: Vec<Notice>,
    /// When something may be due though nothing changed.
    pub wake: Option<Timestamp>,
}

impl Turn {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stages.iter().all(Vec::is_empty)
    }

    /// Takes what is told as soon as the stage `at` is done. What was written is not planned again, so what it tells must not
    /// be lost with a later stage.
    pub fn told_with(&mut self, at: usize) -> Vec<Notice> {
        let last = at + 1 >= self.stages.len();
        let stage = self.stages.get(at).map(Vec::as_slice).unwrap_or_default();
        let says = |notice: &Notice, write: &Write| {
            matches!(write.change, Change::Status(_)) && write.target == notice.about
        };
        let due = |notice: &mut Notice| last || stage.iter().any(|write| says(notice, write));
        self.notices.extract_if(.., due).collect()
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

/// What a lane needs next.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// Read these, then ask again.
    Read(Vec<Target>),
    /// Do this; when something was written, ask again.
    Do(Turn),
}
