//! Results of commands, which go to standard output in the requested format.

pub(crate) mod cli_output;
pub(crate) mod expiry;
mod keys;
pub(crate) mod table;
pub(crate) mod words;

use serde::Serialize;

use crate::args::Format;
use crate::cli_error::CliError;

pub(crate) use cli_output::CliOutput;
pub(crate) use table::TextTable;

/// A result that can be printed in every format.
pub(crate) struct CommandResult {
    value: serde_json::Value,
    table: TextTable,
    names: Vec<String>,
    /// Text below the table.
    footer: String,
}

impl CommandResult {
    /// A result: the data, its columns, and the names in it.
    ///
    /// # Errors
    /// When the data cannot be serialized.
    pub(crate) fn new(
        value: &impl Serialize,
        table: TextTable,
        names: Vec<String>,
    ) -> Result<Self, CliError> {
        let value = serde_json::to_value(value)
            .map_err(|error| CliError::failed(format!("cannot write JSON: {error}")))?;
        Ok(Self { value, table, names, footer: String::new() })
    }

    /// Adds text below the table.
    #[must_use]
    pub(crate) fn footer(mut self, footer: impl Into<String>) -> Self {
        self.footer = footer.into();
        self
    }

    /// The text in a format. It ends with a line break unless it is empty.
    ///
    /// # Errors
    /// When the data cannot be serialized.
    pub(crate) fn text(&self, format: Format) -> Result<String, CliError> {
        Ok(match format {
            Format::Json => format!("{:#}\n", self.value),
            Format::Yaml => serde_saphyr::to_string(&self.value)
                .map_err(|error| CliError::failed(format!("cannot write YAML: {error}")))?,
            Format::Name => self.names.iter().map(|name| format!("{name}\n")).collect(),
            Format::Table => self.table.text(false) + &self.footer,
            Format::Wide => self.table.text(true) + &self.footer,
        })
    }
}
