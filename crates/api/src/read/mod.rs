//! Reading a `KubernetesCluster` that a person wrote: strictly, and with all mistakes at once.
//!
//! An API server drops a field that it does not know, in silence. A person who misspelt `nodeList` should hear of it, so
//! the text is first held against the schema, place by place, and only then made into the type.

mod check;
mod closest;
mod mistake;
mod tree;

use crate::crd::json_schema;
use crate::kubernetes_cluster::KubernetesCluster;
pub use mistake::Mistake;
use tree::{Kind, TextPosition, Tree};

/// Why a text is no `KubernetesCluster`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The text is not YAML.
    #[error("line {line}, column {column}: not YAML: {reason}")]
    NotYaml {
        /// Where reading stopped, from 1.
        line: u64,
        /// The character in that line, from 1.
        column: u64,
        /// What the parser says.
        reason: String,
    },
    /// Nothing but comments and blank lines.
    #[error("the file is empty; it should hold one KubernetesCluster")]
    Empty,
    /// More than one YAML document.
    #[error(
        "the file holds {count} documents, the second from line {line}; give one KubernetesCluster per file"
    )]
    SeveralDocuments {
        /// How many.
        count: usize,
        /// Where the second one begins, from 1.
        line: u64,
    },
    /// Another kind of object, or none.
    #[error("the file holds {found}, not apiVersion: ecs.yun.com/v1, kind: KubernetesCluster")]
    WrongKind {
        /// What it holds instead.
        found: String,
    },
    /// It is one, with mistakes; in the order of the file, never empty.
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

/// Reads one `KubernetesCluster` from YAML or JSON. Rules that span fields are not looked at here; they are the
/// schema's (an API server judges them), and the plan's.
///
/// # Errors
/// When the text is no YAML, is empty, holds several documents or another kind, or has mistakes; then all of them.
pub fn read_yaml(text: &str) -> Result<KubernetesCluster, ReadError> {
    let document = only_document(text)?;
    expect_kind(&document)?;
    let mut mistakes = check::all(&document, &json_schema());
    if mistakes.is_empty() {
        // The document may be framed by empty ones.
        match serde_saphyr::from_multiple_with_options::<Option<KubernetesCluster>>(text, tree::options()) {
            Ok(documents) => {
                let cluster = documents.into_iter().flatten().next().ok_or(ReadError::Empty)?;
                match named(&cluster, &document) {
                    None => return Ok(cluster),
                    Some(mistake) => mistakes.push(mistake),
                }
            }
            Err(error) => mistakes.push(parse_mistake(&error, &document)),
        }
    }
    Err(ReadError::Mistakes(mistakes))
}

fn only_document(text: &str) -> Result<Tree, ReadError> {
    let documents = tree::documents(text).map_err(|error| {
        let (place, reason) = tree::explain(&error);
        ReadError::NotYaml { line: place.line, column: place.column, reason }
    })?;
    let mut written = documents.into_iter().filter(|document| !matches!(document.kind, Kind::Null));
    let first = written.next().ok_or(ReadError::Empty)?;
    match written.next() {
        None => Ok(first),
        Some(second) => {
            Err(ReadError::SeveralDocuments { count: 2 + written.count(), line: second.place.line })
        }
    }
}

fn expect_kind(document: &Tree) -> Result<(), ReadError> {
    let text = |name| {
        document.get(name).and_then(|value| match &value.kind {
            Kind::Text(text) => Some(text.as_str()),
            _ => None,
        })
    };
    let found = match (&document.kind, text("apiVersion"), text("kind")) {
        (Kind::Map(_), Some("ecs.yun.com/v1"), Some("KubernetesCluster")) => return Ok(()),
        (Kind::Map(_), Some(version), Some(kind)) => format!("apiVersion: {version}, kind: {kind}"),
        (Kind::Map(_), None, Some(kind)) => format!("kind: {kind} without an apiVersion"),
        (Kind::Map(_), Some(version), None) => format!("apiVersion: {version} without a kind"),
        (Kind::Map(_), None, None) => "no apiVersion and no kind".to_owned(),
        (other, ..) => other.name().to_owned(),
    };
    Err(ReadError::WrongKind { found })
}

/// A cluster needs a name that hosts and files can carry.
fn named(cluster: &KubernetesCluster, document: &Tree) -> Option<Mistake> {
    let metadata = document.get("metadata");
    let at = |place: TextPosition, reason: String| {
        Some(Mistake { line: place.line, column: place.column, field: "metadata.name".to_owned(), reason })
    };
    match metadata.and_then(|metadata| metadata.get("name")) {
        None => at(metadata.unwrap_or(document).place, "is missing; give the cluster a name".to_owned()),
        Some(name) => {
            cluster.cluster_name().err().and_then(|error| at(name.place, format!("is wrong: {error}")))
        }
    }
}

fn parse_mistake(error: &serde_saphyr::Error, document: &Tree) -> Mistake {
    let (place, reason) = tree::explain(error);
    Mistake {
        line: place.line,
        column: place.column,
        field: document.path_at(place),
        reason: format!("is wrong: {reason}"),
    }
}

#[cfg(test)]
mod tests;
