//! The format of results.

use clap::{Args, ValueEnum};

/// The format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    Table,
    /// A table with more columns
    Wide,
    /// Names only, one per line
    Name,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// `-o`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FormatFlag {
    /// Format of the result
    #[arg(short = 'o', long = "output", value_enum, help_heading = None, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
}
