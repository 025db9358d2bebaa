//! Flags that several commands about changes have.

use clap::Args;
use kubeon_engine::cluster_target::TargetOptions;
use kubeon_engine::engine::ignored_checks;
use kubeon_engine::error::EngineError;
use kubeon_engine::login_request::LoginRequests;

use super::contact::ContactFlags;
use super::format::FormatFlag;
use super::ignore::IgnoreFlag;
use super::login::KnownLoginFlags;
use super::pre_apply::PreApplyFlags;
use super::rolling::RollingFlags;

/// Flags of changes that concern a whole cluster.
#[derive(Debug, Args)]
pub(crate) struct CommonChangeFlags {
    #[command(flatten)]
    pub rolling: RollingFlags,
    #[command(flatten)]
    pub ignore: IgnoreFlag,
    /// Only show the plan
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    #[command(flatten)]
    pub pre_apply_wait: PreApplyFlags,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}

impl CommonChangeFlags {
    /// The options of the target.
    ///
    /// # Errors
    /// Refuses an unknown check, and one that cannot be ignored.
    pub(crate) fn target_options(&self) -> Result<TargetOptions, EngineError> {
        Ok(TargetOptions {
            logins: LoginRequests::from(&self.login),
            ignore: ignored_checks(&self.ignore.ignore)?,
            max_unavailable: self.rolling.max_unavailable,
            ..TargetOptions::default()
        })
    }
}
