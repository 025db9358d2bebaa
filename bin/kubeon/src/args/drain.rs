//! How workers leave.

use clap::{Args, builder::RangedU64ValueParser};

/// How workers leave.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Workers")]
pub(crate) struct LeaveFlags {
    /// Seconds that the pods of a worker may take to go elsewhere before it leaves
    #[arg(long, value_name = "SECONDS", default_value_t = kubeon_plan::Intent::DRAIN_SECONDS,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=7200), hide_short_help = true)]
    pub drain_timeout: u32,
}
