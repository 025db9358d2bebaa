//! Flags about the output to standard error.

use clap::{Args, ValueEnum};

/// The amount and form of output.
#[derive(Debug, Clone, Args)]
pub(crate) struct VerbosityFlags {
    /// Verbosity: 0 errors, 1 progress, 4 the output of every step, 6 and more for debugging
    #[arg(
        short = 'v',
        long = "v",
        global = true,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true,
        help_heading = "Output"
    )]
    pub verbosity: i32,
    /// Print only results and errors
    #[arg(long, global = true, help_heading = "Output")]
    pub quiet: bool,
    /// Form of progress on standard error: human, or json with one event per line
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        default_value = "human",
        hide_short_help = true,
        help_heading = "Output"
    )]
    pub progress: ProgressForm,
}

/// Form of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    Human,
    Json,
}
