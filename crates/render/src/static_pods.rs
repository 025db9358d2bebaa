//! Static pods: those of the control plane, which the kubeadm of the bundle makes out of a configuration of version v1beta4, and
//! that of haproxy. Their programs have the arguments of the services of systemd.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeon_api::Version;
use kubeon_wire::{MANIFESTS, StaticPod};
use serde_json::{Value, json};

use crate::arguments::{self, ApiServerUnit, ControllerManager, EtcdMember};
use crate::config::pretty;
use crate::paths::{CONTAINERD_SOCKET, ETC, ETCD_DATA, ETCD_MEMBERSHIP, HAPROXY_IMAGE, PKI, etc, program};

/// The part of the bundle with kubeadm.
pub const KUBEADM: &str = "kubeadm";
/// The path of haproxy in its image.
const HAPROXY: &str = "/usr/sbin/haproxy";
/// The user of haproxy in its image.
const HAPROXY_USER: u32 = 99;
/// How long a program may start before the kubelet starts it again: on a slow host an API server takes minutes.
const START_LIMIT: &str = "30m0s";

/// The folder of the audit log.
const AUDIT_FOLDER: &str = "/var/log/kubernetes";
/// The folder with the certificate authorities of the host.
const AUTHORITIES: &str = "/etc/ssl/certs";

/// The host of a pod, and the version of the program in it.
#[derive(Debug, Clone, Copy)]
pub struct PodHost<'a> {
    /// The name of its node.
    pub node: &'a str,
    /// The address at which other hosts reach it.
    pub address: Ipv4Addr,
    /// The version of Kubernetes, from which kubeadm derives the images.
    pub version: Version,
}

/// A folder of the host that the pod of a program sees besides those that kubeadm gives it.
struct HostFolder {
    name: &'static str,
    path: &'static str,
    writable: bool,
}

/// Whether the pods of the programs of the control plane see a file of the host, if it exists there.
#[must_use]
pub fn is_visible(path: &str) -> bool {
    let inside = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    [AUTHORITIES, ETC].into_iter().any(inside)
}

/// The file that makes the folder of the manifests, and its text. A kubelet reads no file whose name begins with a dot.
#[must_use]
pub fn folder_mark() -> (String, String) {
    (format!("{MANIFESTS}/.kubeon"), "Written by kubeon: static pods of this host.\n".to_owned())
}

/// `etcd.pod`: a member. `image_tag` is the tag of its image in the bundle. What the member reads at its first start only is in
/// the file of the members, as for the service.
#[must_use]
pub fn etcd(host: &PodHost<'_>, image_tag: &str, extra: &BTreeMap<String, String>) -> String {
    let member = EtcdMember { name: host.node, address: host.address };
    let variables = ["cluster", "cluster-token", "cluster-state"].map(|name| {
        let variable = format!("ETCD_INITIAL_{}", name.to_uppercase().replace('-', "_"));
        format!("--initial-{name}=${{{variable}}}")
    });
    let arguments: Vec<String> = arguments::etcd(&member).into_iter().chain(variables).collect();
    let local = json!({ "dataDir": ETCD_DATA, "imageTag": image_tag, "extraArgs": named(&arguments, extra) });
    let fields = json!({ "etcd": { "local": local } });
    text(&StaticPod::Kubeadm {
        program: program(KUBEADM, KUBEADM),
        phase: vec!["etcd".to_owned(), "local".to_owned()],
        configuration: configuration(host, fields),
        environment_file: Some(ETCD_MEMBERSHIP.to_owned()),
    })
}

/// `kube-apiserver.pod`.
#[must_use]
pub fn apiserver(host: &PodHost<'_>, api: &ApiServerUnit<'_>, extra: &BTreeMap<String, String>) -> String {
    let mut arguments = arguments::api_server(api, extra);
    // kubeadm turns it on. Hosts join with certificates.
    arguments.push("--enable-bootstrap-token-auth=false".to_owned());
    let folders = [
        HostFolder { name: "kubernetes", path: ETC, writable: false },
        HostFolder { name: "audit", path: AUDIT_FOLDER, writable: true },
    ];
    control_plane(host, "apiserver", "apiServer", named(&arguments, extra), &folders)
}

/// `kube-controller-manager.pod`.
#[must_use]
pub fn controller_manager(
    host: &PodHost<'_>,
    manager: &ControllerManager<'_>,
    extra: &BTreeMap<String, String>,
) -> String {
    const CONTROLLERS: &str = "controllers";
    let mut arguments = arguments::controller_manager(manager);
    if !extra.contains_key(CONTROLLERS) {
        // kubeadm adds those of bootstrap tokens.
        arguments.push(format!("--{CONTROLLERS}=*"));
    }
    let folders = [HostFolder { name: "kubernetes", path: ETC, writable: false }];
    control_plane(host, "controller-manager", "controllerManager", named(&arguments, extra), &folders)
}

/// `kube-scheduler.pod`.
#[must_use]
pub fn scheduler(host: &PodHost<'_>, feature_gates: &str, extra: &BTreeMap<String, String>) -> String {
    let folders = [
        HostFolder { name: "kubernetes", path: ETC, writable: false },
        HostFolder { name: "ca-certs", path: AUTHORITIES, writable: false },
    ];
    control_plane(
        host,
        "scheduler",
        "scheduler",
        named(&arguments::scheduler(feature_gates), extra),
        &folders,
    )
}

/// A pod of the control plane: its phase of kubeadm, its section in the configuration, its arguments and the folders that it sees.
fn control_plane(
    host: &PodHost<'_>,
    phase: &str,
    section: &str,
    arguments: Vec<Value>,
    folders: &[HostFolder],
) -> String {
    let volumes: Vec<Value> = folders.iter().map(volume).collect();
    let fields = json!({ section: { "extraArgs": arguments, "extraVolumes": volumes } });
    text(&StaticPod::Kubeadm {
        program: program(KUBEADM, KUBEADM),
        phase: vec!["control-plane".to_owned(), phase.to_owned()],
        configuration: configuration(host, fields),
        environment_file: None,
    })
}

fn volume(folder: &HostFolder) -> Value {
    json!({
        "name": folder.name,
        "hostPath": folder.path,
        "mountPath": folder.path,
        "readOnly": !folder.writable,
        "pathType": "DirectoryOrCreate",
    })
}

/// The documents of kubeadm's configuration: of the host, and of the cluster with these further fields.
fn configuration(host: &PodHost<'_>, fields: Value) -> String {
    const VERSION: &str = "kubeadm.k8s.io/v1beta4";
    let init = json!({
        "apiVersion": VERSION,
        "kind": "InitConfiguration",
        "nodeRegistration": {
            "name": host.node,
            "criSocket": format!("unix://{CONTAINERD_SOCKET}"),
            "imagePullPolicy": "IfNotPresent",
        },
        "localAPIEndpoint": { "advertiseAddress": host.address, "bindPort": 6443 },
        "timeouts": { "controlPlaneComponentHealthCheck": START_LIMIT },
    });
    let mut cluster = json!({
        "apiVersion": VERSION,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": host.version,
        "certificatesDir": PKI,
    });
    if let (Value::Object(cluster), Value::Object(fields)) = (&mut cluster, fields) {
        cluster.extend(fields);
    }
    format!("{}---\n{}", pretty(&init), pretty(&cluster))
}

/// Arguments as kubeadm reads them: `--name=value`, or `--name` for one that is true.
fn named(arguments: &[String], extra: &BTreeMap<String, String>) -> Vec<Value> {
    let own = arguments.iter().map(|argument| {
        let argument = argument.trim_start_matches("--");
        argument.split_once('=').unwrap_or((argument, "true"))
    });
    let extra = extra.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    own.chain(extra).map(|(name, value)| json!({ "name": name, "value": value })).collect()
}

/// [`HAPROXY_IMAGE`]: the name of the image for the next manifest of [`haproxy`].
#[must_use]
pub fn haproxy_image(name: &str) -> String {
    format!("# Written by kubeon. Read when the pod starts.\nHAPROXY_IMAGE={name}\n")
}

/// `haproxy.pod`: a worker's way to the API servers. Its labels are those of the seed. It sees the whole folder of its
/// configuration, because a file that is replaced would stay the old one in the pod.
///
/// `program` identifies the program in the image. The name of the image has the version of Kubernetes: it is in a file of its own, so
/// that the pod starts again for another program only.
#[must_use]
pub fn haproxy(program: &str) -> String {
    let file = etc("haproxy.cfg");
    let manifest = format!(
        "# Written by kubeon. Changes are replaced. The program of its image: {program}\n\
         apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    component: local-haproxy\n    tier: worker\n  \
         name: haproxy\n  namespace: kube-system\nspec:\n  containers:\n  - name: haproxy\n    image: \"${{HAPROXY_IMAGE}}\"\n    \
         imagePullPolicy: IfNotPresent\n    command: [\"{HAPROXY}\", \"-W\", \"-f\", \"{file}\"]\n    \
         livenessProbe:\n      tcpSocket: {{host: 127.0.0.1, port: 6443}}\n      failureThreshold: 8\n      \
         initialDelaySeconds: 10\n      periodSeconds: 10\n      timeoutSeconds: 15\n    \
         resources:\n      requests: {{cpu: 100m}}\n    \
         securityContext:\n      allowPrivilegeEscalation: false\n      capabilities: {{drop: [ALL]}}\n      \
         readOnlyRootFilesystem: true\n      runAsNonRoot: true\n      runAsUser: {HAPROXY_USER}\n    \
         volumeMounts:\n    - {{name: kubernetes, mountPath: {ETC}, readOnly: true}}\n  \
         hostNetwork: true\n  priority: 2000001000\n  priorityClassName: system-node-critical\n  \
         securityContext:\n    seccompProfile: {{type: RuntimeDefault}}\n  \
         volumes:\n  - name: kubernetes\n    hostPath: {{path: {ETC}, type: Directory}}\n"
    );
    text(&StaticPod::Text { text: manifest, environment_file: Some(HAPROXY_IMAGE.to_owned()) })
}

/// The text of a unit. Plain data always has a JSON form.
fn text(pod: &StaticPod) -> String {
    serde_json::to_value(pod).map(|pod| pretty(&pod)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::AUDIT_LOG;

    const HOST: PodHost<'_> = PodHost {
        node: "h1",
        address: Ipv4Addr::new(10, 0, 0, 1),
        version: Version { major: 1, minor: 36, patch: 3 },
    };

    /// The documents of the configuration in a unit, and the phase.
    fn documents(unit: &str) -> (Value, Value, String) {
        let StaticPod::Kubeadm { phase, configuration, .. } = serde_json::from_str(unit).unwrap() else {
            panic!("{unit}");
        };
        let (init, cluster) = configuration.split_once("---\n").unwrap();
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        (read(init), read(cluster), phase.join(" "))
    }

    fn value<'a>(arguments: &'a Value, name: &str) -> &'a str {
        let mut found = arguments.as_array().unwrap().iter().filter(|argument| argument["name"] == name);
        let value =
            found.next().unwrap_or_else(|| panic!("{name} in {arguments}"))["value"].as_str().unwrap();
        assert!(found.next().is_none(), "{name} is there twice");
        value
    }

    #[test]
    fn a_member_is_as_its_service_and_reads_the_members_from_their_file() {
        let unit =
            etcd(&HOST, "3.6.8-0", &BTreeMap::from([("quota-backend-bytes".to_owned(), "9".to_owned())]));
        let (init, cluster, phase) = documents(&unit);
        assert_eq!((phase.as_str(), &init["apiVersion"]), ("etcd local", &json!("kubeadm.k8s.io/v1beta4")));
        assert_eq!(init["localAPIEndpoint"]["advertiseAddress"], "10.0.0.1");
        let local = &cluster["etcd"]["local"];
        assert_eq!((&local["imageTag"], &local["dataDir"]), (&json!("3.6.8-0"), &json!(ETCD_DATA)));
        let arguments = &local["extraArgs"];
        assert_eq!(value(arguments, "initial-cluster"), "${ETCD_INITIAL_CLUSTER}");
        assert_eq!(value(arguments, "initial-cluster-state"), "${ETCD_INITIAL_CLUSTER_STATE}");
        assert_eq!(value(arguments, "initial-cluster-token"), "${ETCD_INITIAL_CLUSTER_TOKEN}");
        assert_eq!(value(arguments, "client-cert-auth"), "true");
        assert_eq!(value(arguments, "quota-backend-bytes"), "9");
        assert!(unit.contains(ETCD_MEMBERSHIP), "{unit}");
    }

    #[test]
    fn programs_of_the_control_plane_have_the_arguments_of_their_services() {
        let manager = ControllerManager {
            cluster: "demo",
            pod_cidr: "10.96.0.0/12",
            service_cidr: "10.64.0.0/12",
            node_mask_size: 24,
            feature_gates: "A=true",
        };
        let unit = controller_manager(&HOST, &manager, &BTreeMap::new());
        let (_, cluster, phase) = documents(&unit);
        assert_eq!(
            (phase.as_str(), &cluster["kubernetesVersion"]),
            ("control-plane controller-manager", &json!("v1.36.3"))
        );
        let section = &cluster["controllerManager"];
        for (name, wanted) in [
            ("cluster-name", "demo"),
            ("cluster-signing-cert-file", "/etc/kubernetes/pki/ca-signing.pem"),
            ("controllers", "*"),
            ("feature-gates", "A=true"),
        ] {
            assert_eq!(value(&section["extraArgs"], name), wanted);
        }
        assert_eq!(section["extraVolumes"][0]["hostPath"], ETC);
        let api = ApiServerUnit {
            address: HOST.address,
            etcd: &[Ipv4Addr::LOCALHOST],
            service_cidr: "10.64.0.0/12",
            node_ports: (30000, 32767),
            dns_domain: "cluster.local",
            feature_gates: "",
        };
        let (_, cluster, _) = documents(&apiserver(&HOST, &api, &BTreeMap::new()));
        let arguments = &cluster["apiServer"]["extraArgs"];
        assert_eq!(value(arguments, "audit-log-path"), AUDIT_LOG);
        assert!(AUDIT_LOG.starts_with(AUDIT_FOLDER));
        assert_eq!(value(arguments, "enable-bootstrap-token-auth"), "false");
        let (_, cluster, phase) = documents(&scheduler(&HOST, "", &BTreeMap::new()));
        assert_eq!(
            (phase.as_str(), value(&cluster["scheduler"]["extraArgs"], "leader-elect")),
            ("control-plane scheduler", "true")
        );
    }

    #[test]
    fn the_pod_of_haproxy_depends_on_its_program_and_not_on_the_name_of_its_image() {
        let unit = haproxy("0a1b2c");
        let StaticPod::Text { text, environment_file } = serde_json::from_str(&unit).unwrap() else {
            panic!("{unit}")
        };
        assert_eq!(environment_file.as_deref(), Some(HAPROXY_IMAGE));
        assert!(text.contains("    image: \"${HAPROXY_IMAGE}\"\n"), "{text}");
        assert_ne!(unit, haproxy("3d4e5f"));
        let variables = haproxy_image("registry.k8s.io/haproxy:2.6");
        assert!(variables.ends_with("\nHAPROXY_IMAGE=registry.k8s.io/haproxy:2.6\n"), "{variables}");
        assert!(text.lines().any(|line| line == "metadata:"), "{text}");
        assert!(
            text.contains("\n  hostNetwork: true\n") && text.contains("component: local-haproxy\n"),
            "{text}"
        );
        assert!(text.contains("\n    command: [\"/usr/sbin/haproxy\", \"-W\""), "{text}");
    }

    #[test]
    fn pods_see_the_files_of_the_cluster_and_no_others() {
        for (path, visible) in [
            ("/etc/kubernetes/webhook.yaml", true),
            ("/etc/ssl/certs/ca.pem", true),
            ("/etc/kubernetes", false),
            ("/etc/kubernetes-other/x", false),
            ("/root/x", false),
        ] {
            assert_eq!(is_visible(path), visible, "{path}");
        }
    }
}
