//! Units that are static pods. A host treats them like units of systemd: it starts them again when their text or a file that they
//! read has changed, stops them, and reports whether they run.

use serde::{Deserialize, Serialize};

/// The suffix of the name of a unit that is a static pod, such as `etcd.pod`.
pub const POD_SUFFIX: &str = ".pod";

/// The suffix of the name of a unit that is a service of systemd.
const SERVICE_SUFFIX: &str = ".service";

/// The folder in which a kubelet finds the manifests of its static pods.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";

/// The text of a unit that is a static pod, as JSON. The name of its pod is that of the unit without its suffix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "manifest")]
pub enum StaticPod {
    /// kubeadm makes the manifest when the pod starts.
    #[serde(rename_all = "camelCase")]
    Kubeadm {
        /// The path of kubeadm on the host.
        program: String,
        /// The phase of `kubeadm init`, such as `etcd local`: its words.
        phase: Vec<String>,
        /// The configuration of kubeadm. `${NAME}` is a variable of `environment_file`.
        configuration: String,
        /// A file with lines `NAME=VALUE`, which is read when the manifest is made: what it says starts no pod again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment_file: Option<String>,
    },
    /// The manifest itself, as YAML with the fields of kubeadm's: `metadata:` is a line of its own.
    #[serde(rename_all = "camelCase")]
    Text {
        /// The manifest. `${NAME}` is a variable of `environment_file`.
        text: String,
        /// As for a pod that kubeadm makes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment_file: Option<String>,
    },
}

/// The name of the program or pod that a unit runs: its own without the suffix.
#[must_use]
pub fn program_of_unit(name: &str) -> &str {
    name.strip_suffix(SERVICE_SUFFIX).or_else(|| name.strip_suffix(POD_SUFFIX)).unwrap_or(name)
}

/// The name of the unit that runs a program as a service of systemd, or as a static pod.
#[must_use]
pub fn unit_of_program(program: &str, is_static_pod: bool) -> String {
    format!("{program}{}", if is_static_pod { POD_SUFFIX } else { SERVICE_SUFFIX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_unit_says_what_runs_it() {
        for (is_static_pod, unit) in [(false, "etcd.service"), (true, "etcd.pod")] {
            assert_eq!(unit_of_program("etcd", is_static_pod), unit);
            assert_eq!(program_of_unit(unit), "etcd");
        }
        assert_eq!(program_of_unit("kubeon-renew.timer"), "kubeon-renew.timer");
    }

    #[test]
    fn the_text_of_a_pod_is_json() {
        let pod = StaticPod::Kubeadm {
            program: "/k".to_owned(),
            phase: vec!["etcd".to_owned(), "local".to_owned()],
            configuration: "kind: ClusterConfiguration\n".to_owned(),
            environment_file: None,
        };
        let text = serde_json::to_string(&pod).unwrap();
        assert!(
            text.starts_with(r#"{"manifest":"kubeadm","program":"/k","phase":["etcd","local"]"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<StaticPod>(&text).unwrap(), pod);
        let pod =
            StaticPod::Text { text: "kind: Pod\n".to_owned(), environment_file: Some("/v.env".to_owned()) };
        let text = serde_json::to_string(&pod).unwrap();
        assert_eq!(text, r#"{"manifest":"text","text":"kind: Pod\n","environmentFile":"/v.env"}"#);
        assert_eq!(serde_json::from_str::<StaticPod>(&text).unwrap(), pod);
    }
}
