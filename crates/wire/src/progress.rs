//! What the program `kubeon` says with `--progress json`: one line of JSON for each thing that happens, on standard error.

use kubeon_api::{HostAddress, Refusal};
use serde::{Deserialize, Serialize};

use crate::precheck::PrecheckReport;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Progress {
    /// The hosts were checked; where something stands in the way, the command ends now.
    Precheck {
        /// Every check on every host.
        report: PrecheckReport,
    },
    /// The plan is ready and will be applied.
    Plan {
        /// Steps to do.
        steps: u32,
        /// Steps that are up to date.
        #[serde(rename = "standing")]
        up_to_date: u32,
    },
    /// State, keys and host keys are saved, and no host was written to yet. Said once, by commands that have something
    /// to do. With `--hold`, the program now waits for a line on standard input.
    Saved,
    /// A step begins.
    Started {
        /// Its host.
        host: HostAddress,
        /// What the host is called.
        name: String,
        /// The stage that the step belongs to: `etcd`.
        #[serde(default)]
        stage: String,
        /// The step's title: `start etcd member h1`.
        step: String,
        /// Why it is done.
        why: String,
    },
    /// A step is done.
    Finished {
        /// Its host.
        host: HostAddress,
        /// The step's title.
        step: String,
        /// Whether anything changed.
        changed: bool,
        /// How long it took on the host.
        milliseconds: u64,
    },
    /// A step did not succeed.
    Failed {
        /// Its host.
        host: HostAddress,
        /// The step's title.
        step: String,
        /// The cause, in words.
        cause: String,
        /// The last lines that the step's program wrote.
        log: Vec<String>,
        /// Whether it will be tried again by itself.
        again: bool,
    },
    /// Something that a person should know.
    Note {
        /// In words.
        text: String,
        /// Whether it warns.
        warning: bool,
    },
    /// The command ended.
    End {
        /// Whether all of it was done.
        ok: bool,
        /// Why not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The command that goes on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<String>,
        /// Every reason why the command was refused, as data.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refusals: Vec<Refusal>,
    },
}
