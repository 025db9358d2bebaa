//! The identity of a worker's host: a client certificate that lives as long as its authority and may only request
//! certificates for the node of the host. A master signs them while the node exists.

/// The user of a host is this prefix and the name of its node.
pub const HOST_USER_PREFIX: &str = "kubeon:host:";
/// The group of all hosts.
pub const HOST_GROUP: &str = "kubeon:hosts";
/// The certificate of the identity on a worker.
pub const HOST_CERTIFICATE: &str = "/var/lib/kubelet/bootstrap/host.crt";
/// The key of [`HOST_CERTIFICATE`].
pub const HOST_KEY: &str = "/var/lib/kubelet/bootstrap/host.key";
/// The signer of the kubelet's serving certificate.
pub const SERVING_SIGNER: &str = "kubeon.io/kubelet-serving";
/// The signer of the kubelet's client certificate, for a host that was off until it expired.
pub const CLIENT_SIGNER: &str = "kubeon.io/kubelet-client";
