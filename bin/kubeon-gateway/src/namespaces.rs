//! The namespace of each caller of the API's version 1, which has no namespaces in its paths.

use std::str::FromStr;

use crate::caller::CallerIdentity;

/// The namespace of callers without a rule.
const DEFAULT: &str = "default";

/// Which namespace a user or a group has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceRule {
    caller: RuleSubject,
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RuleSubject {
    User(String),
    Group(String),
}

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It has another form.
    #[error("{0:?} is not of the form user:NAME=NAMESPACE or group:NAME=NAMESPACE")]
    Form(String),
    /// The namespace is not a DNS label.
    #[error("{0:?} is not the name of a namespace")]
    Namespace(String),
}

impl FromStr for NamespaceRule {
    type Err = RuleError;
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let form = || RuleError::Form(text.to_owned());
        // A user's name may contain an equals sign, a namespace cannot.
        let (caller, namespace) = text.rsplit_once('=').ok_or_else(form)?;
        let caller = match caller.split_once(':') {
            Some(("user", name)) if !name.is_empty() => RuleSubject::User(name.to_owned()),
            Some(("group", name)) if !name.is_empty() => RuleSubject::Group(name.to_owned()),
            _ => return Err(form()),
        };
        if !is_dns_label(namespace) {
            return Err(RuleError::Namespace(namespace.to_owned()));
        }
        Ok(Self { caller, namespace: namespace.to_owned() })
    }
}

/// Whether the text can be the name of a namespace or of a cluster.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| inner(byte) || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// The namespaces of all callers.
#[derive(Debug, Clone, Default)]
pub struct CallerNamespaces(Vec<NamespaceRule>);

impl CallerNamespaces {
    /// The first rule that matches a caller counts.
    #[must_use]
    pub fn new(rules: Vec<NamespaceRule>) -> Self {
        Self(rules)
    }

    /// The namespace of a caller.
    pub(crate) fn of(&self, caller: &CallerIdentity) -> &str {
        let matches = |rule: &&NamespaceRule| match &rule.caller {
            RuleSubject::User(name) => *name == caller.name,
            RuleSubject::Group(name) => caller.groups.contains(name),
        };
        self.0.iter().find(matches).map_or(DEFAULT, |rule| &rule.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_rule_counts() {
        let rules = ["user:alice=a", "group:team-b=b", "user:system:serviceaccount:x:y=y"];
        let namespaces = CallerNamespaces::new(rules.map(|rule| rule.parse().unwrap()).to_vec());
        let of = |name: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            namespaces
                .of(&CallerIdentity { name: name.to_owned(), groups, ..CallerIdentity::default() })
                .to_owned()
        };
        assert_eq!(of("alice", &["team-b"]), "a");
        assert_eq!(of("bob", &["team-b"]), "b");
        assert_eq!(of("system:serviceaccount:x:y", &[]), "y");
        assert_eq!(of("carol", &["team-c"]), "default");
    }

    #[test]
    fn a_rule_of_another_form_is_refused() {
        for bad in ["alice", "alice=a", "user:=a", "role:x=a"] {
            assert_eq!(bad.parse::<NamespaceRule>(), Err(RuleError::Form(bad.to_owned())));
        }
        assert_eq!("user:x=A_b".parse::<NamespaceRule>(), Err(RuleError::Namespace("A_b".to_owned())));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_rule_or_is_refused_with_itself(text in "\\PC{0,60}") {
            match text.parse::<NamespaceRule>() {
                Ok(rule) => proptest::prop_assert!(is_dns_label(&rule.namespace)),
                Err(error) => proptest::prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
