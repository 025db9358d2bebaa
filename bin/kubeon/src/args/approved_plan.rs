//! Flags of plans that are written and approved.

use std::path::PathBuf;

use clap::Args;
use kubeon_engine::approved_plan::{self, ApprovedPlan};
use kubeon_engine::error::EngineError;
use kubeon_plan::Plan;

/// `--out`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PlanFileFlag {
    /// Write the plan to FILE too, for --approved-plan; compressed if FILE ends in .zst
    #[arg(long, value_name = "FILE", help_heading = None)]
    out: Option<PathBuf>,
}

impl PlanFileFlag {
    /// Whether a file is given.
    pub(crate) fn is_given(&self) -> bool {
        self.out.is_some()
    }

    /// The command that applies the plan, with the file if there is one.
    pub(crate) fn applied_by(&self, command: String) -> String {
        let Some(file) = &self.out else { return command };
        let file = file.to_string_lossy();
        let quoted = shlex::try_quote(&file).unwrap_or_else(|_| file.clone());
        format!("{command} --approved-plan {quoted}")
    }

    /// Writes the plan, if the flag is given.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, plan: &Plan) -> Result<(), EngineError> {
        self.out.as_deref().map_or(Ok(()), |file| approved_plan::write(plan, file))
    }
}

/// `--approved-plan`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ApprovedPlanFlag {
    /// Apply only the plan in FILE, which plan --out or --dry-run -o json wrote; refuse when other steps are needed now
    #[arg(
        long,
        value_name = "FILE",
        hide_short_help = true,
        help_heading = None,
        conflicts_with = "dry_run"
    )]
    approved_plan: Option<PathBuf>,
}

impl ApprovedPlanFlag {
    /// Reads the plan.
    ///
    /// # Errors
    /// Refuses a file that cannot be read, or that is not a plan.
    pub(crate) fn read(&self) -> Result<Option<ApprovedPlan>, EngineError> {
        self.approved_plan.as_deref().map(ApprovedPlan::read).transpose()
    }
}
