//! Manifests as kubeadm v1.36 writes them.

use super::*;

/// The manifest of the API server of the first master.
const MANIFEST: &str = "\
apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: 10.0.0.1:6443
  labels:
    component: kube-apiserver
    tier: control-plane
  name: kube-apiserver
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address=10.0.0.1
    - --allow-privileged=true
    - --authorization-mode=Node,RBAC
    - --client-ca-file=/etc/kubernetes/pki/ca.crt
    - --enable-admission-plugins=NodeRestriction
    - --enable-bootstrap-token-auth=true
    - --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt
    - --etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt
    - --etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key
    - --etcd-servers=https://127.0.0.1:2379
    - --kubelet-client-certificate=/etc/kubernetes/pki/apiserver-kubelet-client.crt
    - --kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key
    - --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname
    - --proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt
    - --proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key
    - --requestheader-allowed-names=front-proxy-client
    - --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
    - --requestheader-extra-headers-prefix=X-Remote-Extra-
    - --requestheader-group-headers=X-Remote-Group
    - --requestheader-username-headers=X-Remote-User
    - --secure-port=6443
    - --service-account-issuer=https://kubernetes.default.svc.cluster.local
    - --service-account-key-file=/etc/kubernetes/pki/sa.pub
    - --service-account-signing-key-file=/etc/kubernetes/pki/sa.key
    - --service-cluster-ip-range=10.64.0.0/12
    - --tls-cert-file=/etc/kubernetes/pki/apiserver.crt
    - --tls-private-key-file=/etc/kubernetes/pki/apiserver.key
    image: registry.k8s.io/kube-apiserver:v1.36.3
    imagePullPolicy: IfNotPresent
    name: kube-apiserver
    volumeMounts:
    - mountPath: /etc/ssl/certs
      name: ca-certs
      readOnly: true
  hostNetwork: true
  priorityClassName: system-node-critical
  volumes:
  - hostPath:
      path: /etc/ssl/certs
      type: DirectoryOrCreate
    name: ca-certs
  - hostPath:
      path: /etc/kubernetes/pki
      type: DirectoryOrCreate
    name: k8s-certs
status: {}
";

/// The manifest of a pod that has only these arguments.
fn short(pod: &str, arguments: &[&str]) -> String {
    let lines: String = arguments.iter().map(|argument| format!("    - {argument}\n")).collect();
    format!("spec:\n  containers:\n  - name: {pod}\n    command:\n    - {pod}\n{lines}")
}

/// The manifests of a master by pod.
pub(crate) fn manifests() -> BTreeMap<&'static str, String> {
    let etcd = ["--data-dir=/var/lib/etcd", "--name=h1", "--feature-gates=InitialCorruptCheck=true"];
    let manager = ["--cluster-cidr=10.96.0.0/12", "--controllers=*,bootstrapsigner,tokencleaner"];
    [
        ("etcd", short("etcd", &etcd)),
        ("kube-apiserver", MANIFEST.to_owned()),
        ("kube-controller-manager", short("kube-controller-manager", &manager)),
        ("kube-scheduler", short("kube-scheduler", &["--leader-elect=true"])),
    ]
    .into()
}

fn read_api_server(from: &str, to: &str) -> (PodArguments, Vec<String>) {
    assert!(MANIFEST.contains(from), "{from}");
    let mut problems = Vec::new();
    let found = read(API_SERVER, &MANIFEST.replacen(from, to, 1), &mut problems);
    (found, problems)
}

#[test]
fn what_kubeadm_writes_is_known() {
    let (found, problems) = read_api_server("", "");
    assert_eq!((found.extra, problems), (BTreeMap::new(), Vec::new()));
    assert_eq!(found.of_cluster["service-cluster-ip-range"], "10.64.0.0/12");
    for (pod, known) in PODS {
        let mut problems = Vec::new();
        let found = read(known, &manifests()[pod], &mut problems);
        assert_eq!((found.extra, problems), (BTreeMap::new(), Vec::new()), "{pod}");
    }
}

#[test]
fn arguments_of_the_owner_are_kept_and_other_values_refused() {
    let (found, problems) = read_api_server(
        "    - --secure-port=6443\n",
        "    - --secure-port=6443\n    - --event-ttl=2h\n    - --v\n",
    );
    assert_eq!(problems, Vec::<String>::new());
    let extra: Vec<_> = found.extra.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(extra, [("event-ttl", "2h"), ("v", "true")]);
    let (_, problems) = read_api_server("secure-port=6443", "secure-port=8443");
    assert_eq!(problems, ["has --secure-port=8443; kubeadm sets 6443, and kubeon cannot keep another value"]);
}

#[test]
fn volumes_variables_and_containers_of_the_owner_are_refused() {
    for (from, to, words) in [
        ("path: /etc/ssl/certs", "path: /srv/audit", Some("sees /srv/audit of the host")),
        ("path: /etc/ssl/certs", "path: /etc/kubernetes/audit", None),
        (
            "  - hostPath:\n      path: /etc/ssl",
            "  - emptyDir: {}\n    name: scratch\n  - hostPath:\n      path: /etc/ssl",
            Some("sees volume scratch"),
        ),
        (
            "    imagePullPolicy",
            "    env: [{name: HTTPS_PROXY, value: x}]\n    imagePullPolicy",
            Some("variable HTTPS_PROXY"),
        ),
        ("  hostNetwork: true", "  - name: other\n  hostNetwork: true", Some("has 2 containers")),
        ("  hostNetwork: true", "  hostNetwork: true\n  initContainers: [{name: first}]", Some("run first")),
        ("spec:\n", "spec: [\n", Some("is no YAML")),
    ] {
        let (_, problems) = read_api_server(from, to);
        match words {
            Some(words) => {
                assert!(problems.iter().any(|problem| problem.contains(words)), "{words}: {problems:?}")
            }
            None => assert_eq!(problems, Vec::<String>::new()),
        }
    }
}
