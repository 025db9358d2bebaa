//! The parts of a bundle that belong to nodes. The nodes of a cluster may have those of an older version than its control plane.

use kubeon_api::Version;

use crate::context::PlanContext;
use crate::desired::prepare::{is_node_image, is_node_part};
use crate::input::Artifacts;
use crate::output::Plan;

impl Artifacts {
    /// The same content with the nodes' programs and images of another bundle. etcd, the control plane, kubectl and CoreDNS stay.
    #[must_use]
    pub fn with_nodes_of(&self, other: &Self) -> Self {
        let programs = other.parts.iter().filter(|(name, _)| is_node_part(name));
        let mut merged = self.clone();
        merged.parts.extend(programs.map(|(name, part)| (name.clone(), part.clone())));
        let images = other.images.iter().filter(|(name, _)| is_node_image(name));
        merged.images.extend(images.map(|(name, image)| (name.clone(), image.clone())));
        merged
    }
}

/// Whether the recorded name of a program, which may begin with an architecture, is that of a program of nodes.
#[must_use]
pub fn belongs_to_node(recorded: &str) -> bool {
    is_node_part(recorded.rsplit('/').next().unwrap_or(recorded))
}

impl PlanContext<'_> {
    /// The version of the nodes' programs.
    pub(crate) fn node_version(&self) -> Version {
        self.intent.nodes_at.unwrap_or(self.spec().version)
    }
}

impl Plan {
    /// The version of the nodes' programs after the plan.
    #[must_use]
    pub fn node_version(&self) -> Version {
        self.nodes_at.unwrap_or(self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::artifacts;

    #[test]
    fn only_the_programs_of_nodes_are_of_the_other_bundle() {
        let (new, old) = (artifacts("v1.37.2"), artifacts("v1.36.3"));
        let mixed = new.with_nodes_of(&old);
        let of_old: Vec<&str> = mixed
            .parts
            .keys()
            .filter(|name| mixed.parts[*name] == old.parts[*name])
            .map(String::as_str)
            .collect();
        let nodes =
            ["cni-plugins", "containerd", "flannel", "haproxy", "kube-proxy", "kubelet", "net-tools", "runc"];
        assert_eq!(of_old, nodes);
        assert!(mixed.parts.iter().all(|(name, part)| belongs_to_node(name) || *part == new.parts[name]));
        assert_eq!(mixed.images["pause"], old.images["pause"]);
        assert_eq!(mixed.images["coredns"], new.images["coredns"]);
        assert_eq!(mixed.images["etcd"], new.images["etcd"]);
    }

    #[test]
    fn recorded_names_may_begin_with_an_architecture() {
        assert!(belongs_to_node("kubelet") && belongs_to_node("arm64/kubelet"));
        assert!(!belongs_to_node("etcd") && !belongs_to_node("arm64/kubectl"));
    }
}
