//! Reads objects with kubectl, page by page: the output of a command is limited.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::labels::{CLUSTER, OPERATION_UID};
use serde_json::Value;

use super::kind::MetaKind;
use super::object::{ObjectNote, cleaned, text, title};
use super::references::{DataReference, references};
use super::selection::MetaObjects;
use crate::error::EngineError;
use crate::kubectl::Kubectl;

/// The number of objects in one answer. An object has at most 1.5 MiB, and an output 64 MiB.
const PAGE: usize = 40;
/// The most pages of one kind.
const MOST_PAGES: usize = 50_000;

/// Everything that an export may need.
pub(super) async fn everything(kubectl: &Kubectl) -> Result<MetaObjects, EngineError> {
    let mut found = MetaObjects {
        namespaces: list(kubectl, MetaKind::Namespace, "").await?,
        clusters: list(kubectl, MetaKind::Cluster, "").await?,
        operations: list(kubectl, MetaKind::Operation, "").await?,
        ..MetaObjects::default()
    };
    found.clusters.extend(list(kubectl, MetaKind::KubernetesCluster, "").await?);
    let labelled =
        [(MetaKind::ConfigMap, CLUSTER), (MetaKind::Secret, CLUSTER), (MetaKind::ConfigMap, OPERATION_UID)];
    for (kind, label) in labelled {
        found.data.extend(list(kubectl, kind, label).await?);
    }
    let mut known: BTreeSet<String> = found.data.iter().map(title).collect();
    let (mut wanted, mut needed) = (BTreeSet::new(), Vec::new());
    for object in found.clusters.iter().chain(&found.operations) {
        let of_object = references(object);
        needed.extend(of_object.needed.iter().map(|reference| (title(object), reference.title())));
        let all = of_object.needed.into_iter().chain(of_object.possible);
        wanted.extend(all.filter(|reference| !known.contains(&reference.title())));
    }
    let referenced = by_name(kubectl, &wanted).await?;
    known.extend(referenced.iter().map(title));
    found.data.extend(referenced);
    let missing = needed.into_iter().filter(|(_, reference)| !known.contains(reference));
    found.notes = missing
        .map(|(object, reference)| ObjectNote { object, reason: format!("{reference} does not exist") })
        .collect();
    Ok(found)
}

/// All objects of the kind, or those with the label.
pub(crate) async fn list(kubectl: &Kubectl, kind: MetaKind, label: &str) -> Result<Vec<Value>, EngineError> {
    let mut all = Vec::new();
    let mut next = String::new();
    for _ in 0..MOST_PAGES {
        let mut path = format!("{}?limit={PAGE}", kind.path());
        if !label.is_empty() {
            path.push_str(&format!("&labelSelector={label}"));
        }
        if !next.is_empty() {
            path.push_str(&format!("&continue={next}"));
        }
        let answer = kubectl.run(&["get", "--raw", &path], None).await?;
        let page = parsed(&answer, kind)?;
        text(&page, "/metadata/continue").clone_into(&mut next);
        all.extend(items(page, kind));
        if next.is_empty() {
            return Ok(all);
        }
    }
    Err(EngineError::failed(format!("there are more than {} {}", PAGE * MOST_PAGES, kind.resource())))
}

/// These objects, as far as they exist.
pub(crate) async fn by_name(
    kubectl: &Kubectl,
    wanted: &BTreeSet<DataReference>,
) -> Result<Vec<Value>, EngineError> {
    let mut groups: BTreeMap<(MetaKind, &str), Vec<&str>> = BTreeMap::new();
    for DataReference { kind, namespace, name } in wanted {
        groups.entry((*kind, namespace.as_str())).or_default().push(name.as_str());
    }
    let mut all = Vec::new();
    for ((kind, namespace), names) in groups {
        for names in names.chunks(PAGE) {
            let words = [&["-n", namespace, "get", kind.resource()], names].concat();
            let words = [&words[..], &["--ignore-not-found", "-o", "json"]].concat();
            let answer = kubectl.run(&words, None).await?;
            // kubectl writes nothing when none of them exists.
            if !answer.trim().is_empty() {
                all.extend(items(parsed(&answer, kind)?, kind));
            }
        }
    }
    Ok(all)
}

fn parsed(answer: &str, kind: MetaKind) -> Result<Value, EngineError> {
    serde_json::from_str(answer).map_err(|error| {
        EngineError::failed(format!("cannot read the {} that kubectl shows", kind.resource()))
            .row("cause", error.to_string())
    })
}

/// The objects of a list, or the only object.
fn items(answer: Value, kind: MetaKind) -> Vec<Value> {
    match answer {
        Value::Object(mut fields) => match fields.remove("items") {
            Some(Value::Array(items)) => items.into_iter().map(|item| cleaned(kind, item)).collect(),
            // The list is empty.
            Some(_) => Vec::new(),
            None => vec![cleaned(kind, Value::Object(fields))],
        },
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_and_a_single_object_are_read() {
        let names = |answer: Value| items(answer, MetaKind::Secret).iter().map(title).collect::<Vec<_>>();
        let one = json!({"metadata": {"name": "a", "namespace": "n"}});
        assert_eq!(names(json!({"kind": "List", "items": [one, one]})), ["Secret n/a", "Secret n/a"]);
        assert_eq!(names(one), ["Secret n/a"]);
        assert!(names(json!({"kind": "SecretList", "items": null})).is_empty());
    }
}
