//! What the operator was started with, and the history's limit.

use kubeon_api::{DataRef, HttpsUrl};

/// Seconds that an operation without `activeDeadlineSeconds` waits for objects that it refers to.
pub const INPUTS_TIMEOUT_SECONDS: i64 = 3600;
/// Operations that ended and are kept, when nothing is said.
pub const LIMIT: usize = 30;
/// The most that may be said.
pub const LIMIT_MOST: usize = 200;

/// What holds for every lane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperatorSettings {
    /// Where Jobs of operations that a person wrote are made.
    pub namespace: String,
    /// Namespaces, beside the operator's own, whose objects may be read.
    pub watched: Vec<String>,
    /// Images that hold `kubeon-runner`; the last one is used for operations derived from a `KubernetesCluster`.
    pub runner_images: Vec<String>,
    /// The image whose entry point copies the bundle of a version to `/target`; `{version}` in it stands for the version.
    /// Without one the runner's image must bring the bundle.
    pub bundle_image: Option<String>,
    /// The Kubernetes version of a cluster that names none.
    pub default_version: String,
    /// Operations that ended and are kept for each cluster.
    pub history_limit: usize,
    /// Who is told what came of operations that are derived from a `KubernetesCluster`.
    pub callback: Option<Callback>,
}

/// Who else is told what came of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    /// What the routes of contract B are added to.
    pub url: HttpsUrl,
    /// Certificates that vouch for the listener, PEM; none where those of the runner's image do.
    pub authorities: Option<String>,
}

impl OperatorSettings {
    /// Whether objects of this namespace may be read.
    #[must_use]
    pub fn watches(&self, namespace: &str) -> bool {
        self.namespace == namespace || self.watched.iter().any(|watched| watched == namespace)
    }

    /// Why what a reference names cannot be read, if so.
    #[must_use]
    pub fn unwatched(&self, reference: &DataRef) -> Option<String> {
        (!self.watches(&reference.namespace)).then(|| {
            format!(
                "{reference} is in namespace {}, which the operator was not told to watch (--watch-namespace {0})",
                reference.namespace
            )
        })
    }

    /// Whether an image holds `kubeon-runner`.
    #[must_use]
    pub fn is_runner(&self, image: &str) -> bool {
        self.runner_images.iter().any(|runner| runner == image)
    }
}

/// The limit that a text stands for: what is no number or below one is [`LIMIT`], more than [`LIMIT_MOST`] is that.
#[must_use]
pub fn limit(text: &str) -> usize {
    match text.trim().parse::<i64>() {
        Ok(number) if number > 0 => usize::try_from(number).unwrap_or(LIMIT_MOST).min(LIMIT_MOST),
        _ => LIMIT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract A, case 36.
    #[test]
    fn reads_the_limit_as_older_clients_write_it() {
        for (text, number) in [
            ("", 30),
            ("abc", 30),
            ("-5", 30),
            ("0", 30),
            ("1", 1),
            ("199", 199),
            ("200", 200),
            ("9999", 200),
        ] {
            assert_eq!(limit(text), number, "{text}");
        }
    }
}
