//! Flags about the removal of workers.

use clap::{Args, builder::RangedU64ValueParser};

/// Options of the removal of workers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Workers")]
pub(crate) struct LeaveFlags {
    /// Time limit for draining a worker before it is removed, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = kubeon_plan::Intent::DRAIN_SECONDS,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=7200), hide_short_help = true)]
    pub drain_timeout: u32,
}
