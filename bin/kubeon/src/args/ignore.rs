//! Flags about ignored checks.

use clap::Args;

/// `--ignore`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct IgnoreFlag {
    /// Names of the checks to ignore; see kubeon precheck -o wide
    #[arg(long, value_name = "CHECK,…", value_delimiter = ',', hide_short_help = true, help_heading = None)]
    pub ignore: Vec<String>,
}
