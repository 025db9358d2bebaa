//! Namespaces with kinds that the operator may not list, so that their objects are unknown.

use std::collections::BTreeMap;

use kubeon_operations::ObjectRef;

/// The messages of the API server, by namespace and kind.
#[derive(Default)]
pub(crate) struct UnlistableNamespaces {
    messages: BTreeMap<String, BTreeMap<String, String>>,
}

impl UnlistableNamespaces {
    /// Records that a list was refused. True when the previous one was not.
    pub(super) fn list_refused(&mut self, namespace: &str, kind: &str, message: &str) -> bool {
        let kinds = self.messages.entry(namespace.to_owned()).or_default();
        kinds.insert(kind.to_owned(), message.to_owned()).is_none()
    }

    /// Records that a list succeeded. True when the previous one was refused.
    pub(super) fn list_succeeded(&mut self, namespace: &str, kind: &str) -> bool {
        let Some(kinds) = self.messages.get_mut(namespace) else { return false };
        let was_refused = kinds.remove(kind).is_some();
        if kinds.is_empty() {
            self.messages.remove(namespace);
        }
        was_refused
    }

    /// Whether a kind of this namespace cannot be listed.
    pub(super) fn hides(&self, namespace: &str) -> bool {
        self.messages.contains_key(namespace)
    }

    /// Whether an object may exist although it is not in the cache.
    pub(super) fn may_exist(&self, target: &ObjectRef) -> bool {
        self.messages.get(&target.namespace).is_some_and(|kinds| kinds.contains_key(target.kind.as_str()))
    }

    /// Why the clusters of this namespace are not reconciled; `None` when they are.
    pub(super) fn why(&self, namespace: &str) -> Option<String> {
        let kinds = self.messages.get(namespace)?;
        let message = kinds.values().next()?;
        let names: Vec<&str> = kinds.keys().map(String::as_str).collect();
        Some(format!(
            "the operator cannot list {} in namespace {namespace} and does nothing for its clusters until it can: {message}",
            names.join(", ")
        ))
    }

    /// The reasons of all such namespaces.
    pub(super) fn all(&self) -> Vec<String> {
        self.messages.keys().filter_map(|namespace| self.why(namespace)).collect()
    }
}

#[cfg(test)]
mod tests {
    use kubeon_operations::ObjectKind;

    use super::*;

    #[test]
    fn a_namespace_is_hidden_until_every_kind_can_be_listed_again() {
        let mut unlistable = UnlistableNamespaces::default();
        assert!(unlistable.list_refused("a", "Pod", "no") && unlistable.list_refused("a", "Job", "never"));
        assert!(!unlistable.list_refused("a", "Job", "never"), "it is reported once");
        let why = unlistable.why("a").unwrap();
        assert!(why.contains("cannot list Job, Pod in namespace a ") && why.ends_with(": never"), "{why}");
        assert!(!unlistable.list_succeeded("a", "Secret") && !unlistable.list_succeeded("b", "Job"));
        assert!(
            unlistable.list_succeeded("a", "Job") && unlistable.why("a").is_some() && unlistable.hides("a")
        );
        assert!(
            unlistable.list_succeeded("a", "Pod") && unlistable.all().is_empty() && !unlistable.hides("a")
        );
    }

    #[test]
    fn only_unlistable_objects_may_exist_outside_the_cache() {
        let mut unlistable = UnlistableNamespaces::default();
        unlistable.list_refused("a", "Secret", "no");
        assert!(unlistable.may_exist(&ObjectRef::new(ObjectKind::Secret, "a", "x")));
        assert!(!unlistable.may_exist(&ObjectRef::new(ObjectKind::ConfigMap, "a", "x")));
        assert!(!unlistable.may_exist(&ObjectRef::new(ObjectKind::Secret, "b", "x")));
    }
}
