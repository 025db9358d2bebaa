//! How a result is written.

use clap::{Args, ValueEnum};

/// How a result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people
    Table,
    /// More columns
    Wide,
    /// Names only, one a line
    Name,
    Json,
    Yaml,
}

/// `-o`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FormatFlag {
    /// How the result is written
    #[arg(short = 'o', long = "output", value_enum, help_heading = None, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
}
