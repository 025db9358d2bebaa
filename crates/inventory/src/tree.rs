//! The YAML of the two files.

use kubeon_api::yaml::{self, TextPosition, YamlNode, YamlReason, YamlValue};

use crate::mistake::{InventoryFile, InventoryMistake};

/// Whether Ansible treats a value as true.
pub(crate) fn is_true(value: &YamlValue) -> bool {
    match value {
        YamlValue::Bool(yes) => *yes,
        YamlValue::Integer(number) => *number != 0,
        YamlValue::Fraction(number) => *number != 0.0,
        YamlValue::Text(text) => {
            ["true", "yes", "on", "y", "t", "1"].contains(&text.to_ascii_lowercase().as_str())
        }
        YamlValue::List(items) => !items.is_empty(),
        YamlValue::Map(_) | YamlValue::Null => false,
    }
}

/// Reads the only document of a text. Adds mistakes to `found`.
pub(crate) fn read(text: &str, file: InventoryFile, found: &mut Vec<InventoryMistake>) -> Option<YamlNode> {
    let mut report =
        |line, reason: String| found.push(InventoryMistake { file, line, subject: String::new(), reason });
    match yaml::documents(text) {
        Ok(documents) => {
            let mut written = documents.into_iter().filter(|tree| !matches!(tree.value, YamlValue::Null));
            let first = written.next();
            if let Some(second) = written.next() {
                report(second.place.line, "begins a second document; keep one in the file".to_owned());
            }
            let nothing = YamlNode { place: TextPosition { line: 1, column: 1 }, value: YamlValue::Null };
            Some(first.unwrap_or(nothing))
        }
        Err(mistake) => {
            report(mistake.place.line, explain(mistake.reason, text, file));
            None
        }
    }
}

fn explain(reason: YamlReason, text: &str, file: InventoryFile) -> String {
    let section = |line: &str| line.starts_with('[') && line.trim_end().ends_with(']');
    match reason {
        YamlReason::DuplicateKey(key) => format!("gives {key} twice; keep one"),
        YamlReason::Syntax(_) if file == InventoryFile::Hosts && text.lines().any(section) => {
            "is not YAML but looks like INI: ansible-inventory -i hosts.ini --list --yaml writes it as YAML"
                .to_owned()
        }
        YamlReason::Syntax(reason) => format!("is not YAML: {reason}"),
    }
}
