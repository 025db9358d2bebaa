//! The parsers of kubeon that read bytes from outside, each as a function that a fuzzer can call: it must not panic, and it must
//! keep the rules that are written beside it. `cargo xtask fuzz` searches for inputs that break one; the tests run the inputs that
//! it kept, in `corpus/`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a broken rule must end the process of the fuzzer")]

mod archives;
mod callers;
mod documents;
mod messages;
mod words;

/// A parser under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of the folder of its inputs.
    pub name: &'static str,
    /// Reads the bytes.
    ///
    /// # Panics
    /// When a rule is broken.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "admission-review", run: messages::admission_review },
    Target { name: "approved-plan", run: documents::approved_plan },
    Target { name: "bundle-manifest", run: documents::bundle_manifest },
    Target { name: "certificate-request", run: messages::certificate_request },
    Target { name: "declared-cluster", run: documents::declared_cluster },
    Target { name: "inventory", run: documents::inventory },
    Target { name: "kubeconfig", run: documents::kubeconfig },
    Target { name: "known-hosts", run: documents::known_hosts },
    Target { name: "observed-cluster", run: messages::observed_cluster },
    Target { name: "oidc-keys", run: callers::oidc_keys },
    Target { name: "operation-log", run: messages::operation_log },
    Target { name: "part", run: archives::part },
    Target { name: "rest-body", run: callers::rest_body },
    Target { name: "rest-credentials", run: callers::rest_credentials },
    Target { name: "rest-query", run: callers::rest_query },
    Target { name: "s3-answer", run: messages::s3_answer },
    Target { name: "state-archive", run: archives::state_archive },
    Target { name: "wire", run: messages::wire },
    Target { name: "words", run: words::words },
];

/// The target with this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
