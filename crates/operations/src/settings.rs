//! The settings of the operator, and the limit of the history.

use kubeon_api::kubeonkube::RUNNER_ALIAS;
use kubeon_api::{DataRef, HttpsUrl, JobPlacement, Version};
use kubeon_render::job::BundleImage;

/// Seconds that an operation without `activeDeadlineSeconds` waits for missing objects that it refers to.
pub const INPUTS_TIMEOUT_SECONDS: i64 = 3600;
/// Seconds after which an operation without `activeDeadlineSeconds` ends, so that none blocks its cluster for ever: six hours.
pub const DEFAULT_DEADLINE_SECONDS: i64 = 6 * 3600;
/// Seconds until Kubernetes removes a Job that ended: a week. Its log is stored by then. An operator that was away for longer
/// treats the Job as deleted by a user.
pub(crate) const JOB_TTL_SECONDS: i32 = 7 * 24 * 3600;
/// The number of ended operations that are kept by default.
pub const LIMIT: usize = 30;
/// The highest configurable number of ended operations.
pub const LIMIT_MOST: usize = 200;
/// The most KiB of the logs of a cluster that are kept by default.
pub const LOG_KIB: u32 = 64;

/// The settings that apply to every queue key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperatorSettings {
    /// The namespace of the Jobs of operations that users wrote.
    pub namespace: String,
    /// Namespaces, beside the operator's own, whose objects may be read.
    pub watched: Vec<String>,
    /// Images that hold `kubeon-runner`; the last one is used for operations derived from a `KubernetesCluster`.
    pub runner_images: Vec<String>,
    /// Other images that operations may run: names, and prefixes that end with `*`. Their Jobs get neither state nor token.
    pub allowed_images: Vec<String>,
    /// Where and with which limits the pods of Jobs run.
    pub placement: JobPlacement,
    /// The image with the bundle of a version. When there is none, the runner's image must contain the bundle.
    pub bundle_image: Option<BundleImage>,
    /// The Kubernetes version of a cluster that does not specify one.
    pub default_version: String,
    /// The versions that can be installed, oldest first: an upgrade may visit several.
    pub versions: Vec<Version>,
    /// The number of ended operations that are kept for each cluster.
    pub history_limit: usize,
    /// The most KiB of the logs of a cluster that are kept.
    pub log_kib: u32,
    /// The server that gets the results of operations that are derived from a `KubernetesCluster`.
    pub callback: Option<Callback>,
    /// The keys whose bundles Jobs accept, as lines of the format `allowed_signers`; when there is none, they accept every
    /// bundle.
    pub trusted_keys: Vec<String>,
}

/// The server that gets the results of operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    /// The base URL; the routes of contract B are appended to it.
    pub url: HttpsUrl,
    /// Certificate authorities of the server, PEM; `None` when those of the runner's image are enough.
    pub authorities: Option<String>,
}

impl OperatorSettings {
    /// Whether objects of this namespace may be read.
    #[must_use]
    pub fn watches(&self, namespace: &str) -> bool {
        self.namespace == namespace || self.watched.iter().any(|watched| watched == namespace)
    }

    /// Why the referenced object cannot be read; `None` when it can.
    #[must_use]
    pub fn unwatched(&self, reference: &DataRef) -> Option<String> {
        (!self.watches(&reference.namespace)).then(|| {
            format!(
                "{reference} is in namespace {}, which the operator does not watch (--watch-namespace {0})",
                reference.namespace
            )
        })
    }

    /// The variable that tells `kubeon` in a Job which keys to trust. Public keys are no secret.
    pub(crate) fn trusted_keys_variable(&self) -> Option<(String, String)> {
        let keys = self.trusted_keys.join("\n");
        (!keys.is_empty()).then(|| ("KUBEON_TRUSTED_KEYS".to_owned(), keys))
    }

    /// Why an image is not run; `None` when it is.
    #[must_use]
    pub fn image_refusal(&self, image: &str) -> Option<String> {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => image.starts_with(prefix),
            None => pattern == image,
        };
        if self.is_runner(image) || self.allowed_images.iter().any(matches) {
            return None;
        }
        Some(format!(
            "image {image:?} is not allowed; allowed are {}. The owner of the meta cluster allows more with --allowed-image",
            [self.runner_images.as_slice(), self.allowed_images.as_slice()].concat().join(", ")
        ))
    }

    /// The image that the Job of an operation runs: the name in the samples of kube-on-kube stands for our own image, and
    /// nothing is pulled under that name. The name of our image without its digest stands for the one with it.
    #[must_use]
    pub fn image_of_job<'a>(&'a self, image: &'a str) -> &'a str {
        let stands_for = |runner: &&String| match image {
            RUNNER_ALIAS => *runner != RUNNER_ALIAS,
            _ => without_digest(runner) == image,
        };
        self.runner_images.iter().rfind(stands_for).map_or(image, String::as_str)
    }

    /// Whether an image holds `kubeon-runner`.
    #[must_use]
    pub fn is_runner(&self, image: &str) -> bool {
        self.runner_images.iter().any(|runner| runner == image || without_digest(runner) == image)
    }

    /// The image of derived operations, without its digest: the operation may wait until the operator has another one.
    pub(crate) fn derived_image(&self) -> String {
        self.runner_images.last().map(|image| without_digest(image).to_owned()).unwrap_or_default()
    }
}

/// The name of an image without its digest.
fn without_digest(image: &str) -> &str {
    image.split_once('@').map_or(image, |(name, _)| name)
}

/// Parses a limit. A text that is not a number or a number below one gives [`LIMIT`]; a number above
/// [`LIMIT_MOST`] gives [`LIMIT_MOST`].
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

    #[test]
    fn an_image_that_is_not_listed_is_refused() {
        let settings = OperatorSettings {
            runner_images: vec!["kubeon/kubeon-runner:v1".into()],
            allowed_images: vec!["quay.io/kubespray/*".into(), "busybox:1".into()],
            ..Default::default()
        };
        for allowed in ["kubeon/kubeon-runner:v1", "quay.io/kubespray/kubespray:v2", "busybox:1"] {
            assert_eq!(settings.image_refusal(allowed), None, "{allowed}");
        }
        for refused in ["busybox:2", "quay.io/other:v1", "kubeon/kubeon-runner:v2"] {
            let why = settings.image_refusal(refused).unwrap();
            assert!(
                why.contains(refused) && why.contains("allowed are kubeon/kubeon-runner:v1, quay.io"),
                "{why}"
            );
        }
    }

    #[test]
    fn the_name_in_the_samples_stands_for_our_image() {
        let of = |runner_images: &[&str]| OperatorSettings {
            runner_images: runner_images.iter().map(|&name| name.to_owned()).collect(),
            ..Default::default()
        };
        let settings = of(&[RUNNER_ALIAS, "kubeon/kubeon-runner:v1"]);
        assert_eq!(settings.image_of_job(RUNNER_ALIAS), "kubeon/kubeon-runner:v1");
        assert_eq!(settings.image_of_job("busybox:1"), "busybox:1");
        let pinned = of(&[RUNNER_ALIAS, "kubeon/kubeon-runner:v1@sha256:aa"]);
        for name in [RUNNER_ALIAS, "kubeon/kubeon-runner:v1", "kubeon/kubeon-runner:v1@sha256:aa"] {
            assert!(pinned.is_runner(name), "{name}");
            assert_eq!(pinned.image_of_job(name), "kubeon/kubeon-runner:v1@sha256:aa", "{name}");
        }
        assert_eq!(pinned.derived_image(), "kubeon/kubeon-runner:v1");
        assert!(pinned.image_refusal("kubeon/kubeon-runner:v1@sha256:bb").is_some());
        // The owner of the meta cluster has no other image.
        assert_eq!(of(&[RUNNER_ALIAS]).image_of_job(RUNNER_ALIAS), RUNNER_ALIAS);
    }

    #[test]
    fn jobs_get_the_trusted_keys_only_if_there_are_some() {
        assert_eq!(OperatorSettings::default().trusted_keys_variable(), None);
        let trusted_keys = vec!["a ssh-ed25519 A".to_owned(), "b ssh-ed25519 B".to_owned()];
        let (name, lines) =
            OperatorSettings { trusted_keys, ..Default::default() }.trusted_keys_variable().unwrap();
        assert_eq!(
            (name.as_str(), lines.as_str()),
            ("KUBEON_TRUSTED_KEYS", "a ssh-ed25519 A\nb ssh-ed25519 B")
        );
    }
}
