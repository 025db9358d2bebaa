//! What the API server does not let the operator list, by namespace: what is there is not known.

use std::collections::BTreeMap;

use kubeon_operations::ObjectRef;

/// What the API server said, by namespace and kind.
#[derive(Default)]
pub(crate) struct UnlistableNamespaces {
    said: BTreeMap<String, BTreeMap<String, String>>,
}

impl UnlistableNamespaces {
    /// A list was refused. Whether the one before was not.
    pub(super) fn refused(&mut self, namespace: &str, kind: &str, said: &str) -> bool {
        let kinds = self.said.entry(namespace.to_owned()).or_default();
        kinds.insert(kind.to_owned(), said.to_owned()).is_none()
    }

    /// A list was answered. Whether the one before was refused.
    pub(super) fn answered(&mut self, namespace: &str, kind: &str) -> bool {
        let Some(kinds) = self.said.get_mut(namespace) else { return false };
        let was_refused = kinds.remove(kind).is_some();
        if kinds.is_empty() {
            self.said.remove(namespace);
        }
        was_refused
    }

    /// Whether something of this namespace cannot be listed.
    pub(super) fn hides(&self, namespace: &str) -> bool {
        self.said.contains_key(namespace)
    }

    /// Whether an object may be there unseen.
    pub(super) fn holds(&self, target: &ObjectRef) -> bool {
        self.said.get(&target.namespace).is_some_and(|kinds| kinds.contains_key(target.kind.as_str()))
    }

    /// Why nothing is decided for clusters of this namespace, if so.
    pub(super) fn why(&self, namespace: &str) -> Option<String> {
        let kinds = self.said.get(namespace)?;
        let said = kinds.values().next()?;
        let names: Vec<&str> = kinds.keys().map(String::as_str).collect();
        Some(format!(
            "the operator cannot list {} in namespace {namespace} and does nothing for its clusters until it can: {said}",
            names.join(", ")
        ))
    }

    /// The same of every namespace that there is something to say of.
    pub(super) fn all(&self) -> Vec<String> {
        self.said.keys().filter_map(|namespace| self.why(namespace)).collect()
    }
}

#[cfg(test)]
mod tests {
    use kubeon_operations::ObjectKind;

    use super::*;

    #[test]
    fn a_namespace_is_hidden_until_every_kind_can_be_listed_again() {
        let mut unlistable = UnlistableNamespaces::default();
        assert!(unlistable.refused("a", "Pod", "no") && unlistable.refused("a", "Job", "never"));
        assert!(!unlistable.refused("a", "Job", "never"), "it is said once");
        let why = unlistable.why("a").unwrap();
        assert!(why.contains("cannot list Job, Pod in namespace a ") && why.ends_with(": never"), "{why}");
        assert!(!unlistable.answered("a", "Secret") && !unlistable.answered("b", "Job"));
        assert!(unlistable.answered("a", "Job") && unlistable.why("a").is_some() && unlistable.hides("a"));
        assert!(unlistable.answered("a", "Pod") && unlistable.all().is_empty() && !unlistable.hides("a"));
    }

    #[test]
    fn only_what_cannot_be_listed_may_be_there_unseen() {
        let mut unlistable = UnlistableNamespaces::default();
        unlistable.refused("a", "Secret", "no");
        assert!(unlistable.holds(&ObjectRef::new(ObjectKind::Secret, "a", "x")));
        assert!(!unlistable.holds(&ObjectRef::new(ObjectKind::ConfigMap, "a", "x")));
        assert!(!unlistable.holds(&ObjectRef::new(ObjectKind::Secret, "b", "x")));
    }
}
