//! A quick check of both files without evaluating templates: mistakes that Ansible does not accept either, and the version.

use kubeon_api::Version;

use crate::groups::HostRanges;
use crate::mistake::{InventoryFile, InventoryMistake, Mistakes};
use crate::{groups, variables};

/// The values that are known without Ansible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outline {
    /// `kube_version`, if it is a literal value.
    pub version: Option<Version>,
}

/// Checks that `hosts.yml` and `group_vars.yml` are YAML and that hosts have valid names.
///
/// # Errors
/// The mistakes, without those that a template or a plugin may still correct.
pub fn outline(hosts: &str, extra: &str) -> Result<Outline, Mistakes> {
    let mut found = Vec::new();
    let groups = groups::read(hosts, HostRanges::Skip, &mut found);
    let mut assignments = variables::read(extra, &mut found);
    if let Some(groups) = groups {
        for host in groups.hosts.iter().filter(|host| !is_name(&host.name)) {
            let reason = "is neither a name nor an address: use letters, digits, '.', '_', '-' and ':' only"
                .to_owned();
            let subject = format!("host {:?}", host.name);
            found.push(InventoryMistake { file: InventoryFile::Hosts, line: host.line, subject, reason });
        }
        let everywhere = groups.groups.get("all").map(|all| all.own_variable("kube_version"));
        if let Some(Some(version)) = everywhere {
            assignments.entry("kube_version".to_owned()).or_insert(version);
        }
    }
    if !found.is_empty() {
        return Err(Mistakes::new(found));
    }
    let text = assignments.get("kube_version").and_then(|assignment| assignment.tree.value.scalar());
    let version = text.and_then(|text| {
        let text = text.trim();
        format!("v{}", text.strip_prefix('v').unwrap_or(text)).parse().ok()
    });
    Ok(Outline { version })
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text.chars().all(|c| c.is_alphanumeric() || "._-:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: &str = "all:\n  vars: {kube_version: 1.36.3}\n  hosts: {h1: {}, 10.0.0.2: }\n";

    #[test]
    fn finds_a_literal_version() {
        let version =
            |hosts: &str, extra: &str| outline(hosts, extra).unwrap().version.map(|v| v.to_string());
        assert_eq!(version(HOSTS, "").as_deref(), Some("v1.36.3"));
        assert_eq!(version(HOSTS, "kube_version: v1.35.4").as_deref(), Some("v1.35.4"));
        assert_eq!(version("all: {}\n", "kube_version: '{{ wanted }}'"), None);
    }

    #[test]
    fn reports_mistakes_that_ansible_does_not_accept_either() {
        let mistakes = |hosts: &str, extra: &str| outline(hosts, extra).unwrap_err().to_string();
        assert!(
            mistakes("all: {hosts: {'x;rm -rf /': {}}}\n", "").contains("\"x;rm -rf /\": is neither a name")
        );
        assert!(mistakes(HOSTS, "a: [1,\n").starts_with("group_vars.yml line"));
        assert!(mistakes(HOSTS, "- a\n").contains("holds a list"));
        assert!(mistakes("all: {host: {}}\n", "").contains("is not a field of a group"));
        assert!(outline("all: {hosts: {'h[1:9]': {}}}\n", "").is_ok(), "Ansible expands ranges");
    }
}
