//! Results: to standard output, in the form that was asked for.

pub(crate) mod cli_output;
mod keys;
pub(crate) mod table;
pub(crate) mod words;

use serde::Serialize;

use crate::args::Format;
use crate::cli_error::CliError;

pub(crate) use cli_output::CliOutput;
pub(crate) use table::TextTable;

/// A result in all its forms.
pub(crate) struct CommandResult {
    value: serde_json::Value,
    table: TextTable,
    names: Vec<String>,
    /// What stands below the table.
    foot: String,
}

impl CommandResult {
    /// A result: the data, its columns, and the names in it.
    ///
    /// # Errors
    /// When the data has no JSON form.
    pub(crate) fn new(
        value: &impl Serialize,
        table: TextTable,
        names: Vec<String>,
    ) -> Result<Self, CliError> {
        let value = serde_json::to_value(value)
            .map_err(|error| CliError::failed(format!("cannot write JSON: {error}")))?;
        Ok(Self { value, table, names, foot: String::new() })
    }

    /// With words below the table.
    #[must_use]
    pub(crate) fn foot(mut self, foot: impl Into<String>) -> Self {
        self.foot = foot.into();
        self
    }

    /// The text of one form, ending in a line break unless empty.
    ///
    /// # Errors
    /// When the data has no form of that kind.
    pub(crate) fn text(&self, format: Format) -> Result<String, CliError> {
        Ok(match format {
            Format::Json => format!("{:#}\n", self.value),
            Format::Yaml => serde_saphyr::to_string(&self.value)
                .map_err(|error| CliError::failed(format!("cannot write YAML: {error}")))?,
            Format::Name => self.names.iter().map(|name| format!("{name}\n")).collect(),
            Format::Table => self.table.text(false) + &self.foot,
            Format::Wide => self.table.text(true) + &self.foot,
        })
    }
}
