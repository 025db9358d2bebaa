//! What the API server does not let the operator list, by namespace: what is there is not known.

use std::collections::BTreeMap;

use kubeon_operations::Target;

/// What the API server said, by namespace and kind.
#[derive(Default)]
pub(crate) struct Hidden {
    said: BTreeMap<String, BTreeMap<String, String>>,
}

impl Hidden {
    /// A list was refused. Whether the one before was not.
    pub fn refused(&mut self, namespace: &str, kind: &str, said: &str) -> bool {
        let kinds = self.said.entry(namespace.to_owned()).or_default();
        kinds.insert(kind.to_owned(), said.to_owned()).is_none()
    }

    /// A list was answered. Whether the one before was refused.
    pub fn answered(&mut self, namespace: &str, kind: &str) -> bool {
        let Some(kinds) = self.said.get_mut(namespace) else { return false };
        let was_refused = kinds.remove(kind).is_some();
        if kinds.is_empty() {
            self.said.remove(namespace);
        }
        was_refused
    }

    /// Whether something of this namespace cannot be listed.
    pub fn hides(&self, namespace: &str) -> bool {
        self.said.contains_key(namespace)
    }

    /// Whether an object may be there unseen.
    pub fn holds(&self, target: &Target) -> bool {
        self.said.get(&target.namespace).is_some_and(|kinds| kinds.contains_key(target.kind.as_str()))
    }

    /// Why nothing is decided for clusters of this namespace, if so.
    pub fn why(&self, namespace: &str) -> Option<String> {
        let kinds = self.said.get(namespace)?;
        let said = kinds.values().next()?;
        let names: Vec<&str> = kinds.keys().map(String::as_str).collect();
        Some(format!(
            "the operator cannot list {} in namespace {namespace} and does nothing for its clusters until it can: {said}",
            names.join(", ")
        ))
    }

    /// The same of every namespace that there is something to say of.
    pub fn all(&self) -> Vec<String> {
        self.said.keys().filter_map(|namespace| self.why(namespace)).collect()
    }
}

#[cfg(test)]
mod tests {
    use kubeon_operations::Kind;

    use super::*;

    #[test]
    fn a_namespace_is_hidden_until_every_kind_can_be_listed_again() {
        let mut hidden = Hidden::default();
        assert!(hidden.refused("a", "Pod", "no") && hidden.refused("a", "Job", "never"));
        assert!(!hidden.refused("a", "Job", "never"), "it is said once");
        let why = hidden.why("a").unwrap();
        assert!(why.contains("cannot list Job, Pod in namespace a ") && why.ends_with(": never"), "{why}");
        assert!(!hidden.answered("a", "Secret") && !hidden.answered("b", "Job"));
        assert!(hidden.answered("a", "Job") && hidden.why("a").is_some() && hidden.hides("a"));
        assert!(hidden.answered("a", "Pod") && hidden.all().is_empty() && !hidden.hides("a"));
    }

    #[test]
    fn only_what_cannot_be_listed_may_be_there_unseen() {
        let mut hidden = Hidden::default();
        hidden.refused("a", "Secret", "no");
        assert!(hidden.holds(&Target::new(Kind::Secret, "a", "x")));
        assert!(!hidden.holds(&Target::new(Kind::ConfigMap, "a", "x")));
        assert!(!hidden.holds(&Target::new(Kind::Secret, "b", "x")));
    }
}
