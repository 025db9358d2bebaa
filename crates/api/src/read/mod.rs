//! Reads a `KubernetesCluster` file strictly and reports all mistakes at once.
//!
//! An API server silently drops unknown fields, such as a misspelt `nodeList`. Here the text is first validated against the
//! schema and then deserialized.

mod check;
mod mistake;

use crate::crd::json_schema;
use crate::kubernetes_cluster::KubernetesCluster;
use crate::yaml::{self, TextPosition, YamlMistake, YamlNode, YamlValue};
pub use mistake::Mistake;

/// Why a text is not a valid `KubernetesCluster`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The text is not YAML.
    #[error("line {line}, column {column}: not YAML: {reason}")]
    NotYaml {
        /// Where reading stopped, from 1.
        line: u64,
        /// The character in that line, from 1.
        column: u64,
        /// The reason of the parser.
        reason: String,
    },
    /// The text contains only comments and blank lines.
    #[error("the file is empty; it must contain one KubernetesCluster")]
    Empty,
    /// More than one YAML document.
    #[error(
        "the file contains {count} documents, the second from line {line}; keep one KubernetesCluster in a file"
    )]
    SeveralDocuments {
        /// The number of documents.
        count: usize,
        /// The first line of the second document, from 1.
        line: u64,
    },
    /// The text is another kind of object, or not an object.
    #[error("the file contains {found}, not apiVersion: ecs.yun.com/v1, kind: KubernetesCluster")]
    WrongKind {
        /// The kind that was found.
        found: String,
    },
    /// The text is a `KubernetesCluster` with mistakes, in the order of the file; never empty.
    #[error("{}", listed(.0))]
    Mistakes(Vec<Mistake>),
}

fn listed(mistakes: &[Mistake]) -> String {
    let lines: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
    match lines.as_slice() {
        [only] => only.clone(),
        several => format!("{} mistakes\n  {}", several.len(), several.join("\n  ")),
    }
}

/// Reads one `KubernetesCluster` from YAML or JSON. Rules over several fields are not checked here: the CEL rules of the
/// schema and the plan check them.
///
/// # Errors
/// When the text is not YAML, is empty, contains several documents or another kind, or has mistakes; all of them are
/// returned.
pub fn read_yaml(text: &str) -> Result<KubernetesCluster, ReadError> {
    let document = only_document(text)?;
    expect_kind(&document)?;
    let mut mistakes = check::all(&document, &json_schema());
    if mistakes.is_empty() {
        // Empty documents may precede and follow the document.
        match serde_saphyr::from_multiple_with_options::<Option<KubernetesCluster>>(text, yaml::options()) {
            Ok(documents) => {
                let cluster = documents.into_iter().flatten().next().ok_or(ReadError::Empty)?;
                match name_mistake(&cluster, &document) {
                    None => return Ok(cluster),
                    Some(mistake) => mistakes.push(mistake),
                }
            }
            Err(error) => mistakes.push(parse_mistake(&error, &document)),
        }
    }
    Err(ReadError::Mistakes(mistakes))
}

fn only_document(text: &str) -> Result<YamlNode, ReadError> {
    let documents = yaml::documents(text).map_err(|YamlMistake { place, reason }| ReadError::NotYaml {
        line: place.line,
        column: place.column,
        reason: reason.to_string(),
    })?;
    let mut nonempty = documents.into_iter().filter(|document| !matches!(document.value, YamlValue::Null));
    let first = nonempty.next().ok_or(ReadError::Empty)?;
    match nonempty.next() {
        None => Ok(first),
        Some(second) => {
            Err(ReadError::SeveralDocuments { count: 2 + nonempty.count(), line: second.place.line })
        }
    }
}

fn expect_kind(document: &YamlNode) -> Result<(), ReadError> {
    let text = |name| {
        document.get(name).and_then(|value| match &value.value {
            YamlValue::Text(text) => Some(text.as_str()),
            _ => None,
        })
    };
    let found = match (&document.value, text("apiVersion"), text("kind")) {
        (YamlValue::Map(_), Some("ecs.yun.com/v1"), Some("KubernetesCluster")) => return Ok(()),
        (YamlValue::Map(_), Some(version), Some(kind)) => format!("apiVersion: {version}, kind: {kind}"),
        (YamlValue::Map(_), None, Some(kind)) => format!("kind: {kind} without an apiVersion"),
        (YamlValue::Map(_), Some(version), None) => format!("apiVersion: {version} without a kind"),
        (YamlValue::Map(_), None, None) => "no apiVersion and no kind".to_owned(),
        (other, ..) => other.kind_name().to_owned(),
    };
    Err(ReadError::WrongKind { found })
}

/// The mistake in the name of the cluster, if there is one.
fn name_mistake(cluster: &KubernetesCluster, document: &YamlNode) -> Option<Mistake> {
    let metadata = document.get("metadata");
    let mistake_at = |place: TextPosition, reason: String| {
        Some(Mistake { line: place.line, column: place.column, field: "metadata.name".to_owned(), reason })
    };
    match metadata.and_then(|metadata| metadata.get("name")) {
        None => {
            mistake_at(metadata.unwrap_or(document).place, "is missing; give the cluster a name".to_owned())
        }
        Some(name) => cluster
            .cluster_name()
            .err()
            .and_then(|error| mistake_at(name.place, format!("is wrong: {error}"))),
    }
}

fn parse_mistake(error: &serde_saphyr::Error, document: &YamlNode) -> Mistake {
    let YamlMistake { place, reason } = YamlMistake::of(error);
    Mistake {
        line: place.line,
        column: place.column,
        field: document.path_at(place),
        reason: format!("is wrong: {reason}"),
    }
}

#[cfg(test)]
mod tests;
