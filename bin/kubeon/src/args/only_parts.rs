//! The flag of changes that may put their parts onto the hosts before the rest.

use clap::Args;

/// `--only-parts`.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct OnlyPartsFlag {
    /// Only put the parts of the bundle onto the hosts and store the request, for example before a maintenance
    /// window; kubeon create NAME does the rest
    #[arg(long, hide_short_help = true, help_heading = None, conflicts_with = "approved_plan")]
    pub only_parts: bool,
}
