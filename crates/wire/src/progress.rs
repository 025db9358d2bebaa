//! The output of `kubeon` with `--progress json`: one line of JSON for each event, on standard error.

use kubeon_api::{HostAddress, Refusal};
use serde::{Deserialize, Serialize};

use crate::precheck::PrecheckReport;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Progress {
    /// The hosts were checked. If a check prevents the change, the command ends now.
    Precheck {
        /// Every check of every host.
        report: PrecheckReport,
    },
    /// The plan is ready and will be applied.
    Plan {
        /// The number of steps to execute.
        steps: u32,
        /// The number of steps that are up to date.
        #[serde(rename = "standing")]
        up_to_date: u32,
    },
    /// State, keys and host keys are saved, and no host was changed yet. Commands that have steps to execute
    /// print it once. With `--hold`, the program now waits for a line on standard input.
    Saved,
    /// A step begins.
    Started {
        /// Its host.
        host: HostAddress,
        /// The name of the host.
        name: String,
        /// The stage that the step belongs to: `etcd`.
        #[serde(default)]
        stage: String,
        /// The step's title: `start etcd member h1`.
        step: String,
        /// The reason for the step.
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
        /// How long it took on the host, in milliseconds.
        milliseconds: u64,
    },
    /// A step failed.
    Failed {
        /// Its host.
        host: HostAddress,
        /// The step's title.
        step: String,
        /// The cause, in one sentence.
        cause: String,
        /// The last log lines of the program that the step ran.
        log: Vec<String>,
        /// Whether it will be retried automatically.
        again: bool,
    },
    /// All parts of the plan arrived on their hosts and were checked. Some may still be unpacked.
    PartsReceived {
        /// How many, one for each part of each host.
        parts: u32,
        /// Their bytes as they were sent.
        bytes: u64,
        /// The time since the plan began, in milliseconds.
        milliseconds: u64,
    },
    /// A message for the user.
    Note {
        /// The message.
        text: String,
        /// Whether it is a warning.
        warning: bool,
    },
    /// The command ended.
    End {
        /// Whether the command succeeded.
        ok: bool,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The next command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<String>,
        /// Every reason why the command was refused, as data.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refusals: Vec<Refusal>,
    },
}
