//! Flags about the order in which nodes are restarted.

use clap::Args;
use kubeon_plan::MaxUnavailable;

/// Options of changes that restart services of nodes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Workers")]
pub(crate) struct RollingFlags {
    /// How many workers may be unavailable at the same time while services restart: a number, or a percentage of the
    /// workers such as 10%
    #[arg(long, value_name = "N|N%", default_value_t, hide_short_help = true)]
    pub max_unavailable: MaxUnavailable,
}
