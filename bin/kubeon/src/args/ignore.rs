//! Checks that may fail.

use clap::Args;

/// `--ignore`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct IgnoreFlag {
    /// Checks that may fail, by name; see kubeon precheck -o wide
    #[arg(long, value_name = "CHECK,…", value_delimiter = ',', hide_short_help = true, help_heading = None)]
    pub ignore: Vec<String>,
}
