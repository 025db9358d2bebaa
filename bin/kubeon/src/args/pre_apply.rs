//! Flags of the pre-apply hook.

use std::path::PathBuf;

use clap::Args;
use kubeon_engine::pre_apply_hook::PreApplyWait;

/// `--hold` and `--hold-for`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PreApplyFlags {
    /// Before the first effect on a host, wait up to 120 s for a line on standard input
    #[arg(long, hide_short_help = true, help_heading = "Output", conflicts_with = "hold_for")]
    hold: bool,
    /// Before the first effect on a host, run PROGRAM with the cluster's name and continue when it succeeds;
    /// it may store the output of `kubeon state export`
    #[arg(
        long,
        value_name = "PROGRAM",
        env = "KUBEON_HOLD_FOR",
        hide_short_help = true,
        help_heading = "Output"
    )]
    hold_for: Option<PathBuf>,
}

impl PreApplyFlags {
    /// The condition to wait for.
    pub(crate) fn wait(&self) -> PreApplyWait {
        match &self.hold_for {
            Some(program) => PreApplyWait::Program(program.clone()),
            None if self.hold => PreApplyWait::Line,
            None => PreApplyWait::Nothing,
        }
    }
}
