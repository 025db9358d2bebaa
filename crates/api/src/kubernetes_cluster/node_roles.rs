//! The roles of a host in the status of its cluster.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hosts::Roles;
use crate::host_role::HostRole;

/// The roles of a host. In JSON they are one string: `master,worker,etcd`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct NodeRoles(pub Vec<HostRole>);

impl From<Roles> for NodeRoles {
    fn from(roles: Roles) -> Self {
        let all = [
            (roles.master, HostRole::Master),
            (roles.worker, HostRole::Worker),
            (roles.etcd, HostRole::Etcd),
        ];
        Self(all.into_iter().filter(|(is, _)| *is).map(|(_, role)| role).collect())
    }
}

impl From<String> for NodeRoles {
    fn from(text: String) -> Self {
        Self(text.split(',').filter(|word| !word.is_empty()).map(HostRole::from).collect())
    }
}

impl From<NodeRoles> for String {
    fn from(roles: NodeRoles) -> Self {
        roles.to_string()
    }
}

impl fmt::Display for NodeRoles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(HostRole::as_str).collect();
        f.write_str(&words.join(","))
    }
}

/// An API server accepts every text, so that a role of another version is not refused.
impl JsonSchema for NodeRoles {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NodeRoles".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_one_string() {
        for (text, roles) in [
            ("master,worker,etcd", vec![HostRole::Master, HostRole::Worker, HostRole::Etcd]),
            ("", Vec::new()),
            ("ingress", vec![HostRole::Other("ingress".to_owned())]),
        ] {
            let json = serde_json::to_string(text).unwrap();
            assert_eq!(serde_json::from_str::<NodeRoles>(&json).unwrap(), NodeRoles(roles));
            assert_eq!(serde_json::to_string(&NodeRoles::from(text.to_owned())).unwrap(), json);
        }
    }
}
