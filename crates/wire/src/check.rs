//! What a step can wait for.

use std::net::Ipv4Addr;

use kubeon_api::{HostAddress, HostName, Version};
use serde::{Deserialize, Serialize};

/// A condition that a step can wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "check")]
pub enum Check {
    /// A TCP port accepts a connection.
    Tcp {
        /// The address.
        address: Ipv4Addr,
        /// The port.
        port: u16,
    },
    /// `https://ADDRESS:PORT/PATH` answers 200. The certificates are files on the host.
    Https {
        /// The address.
        address: Ipv4Addr,
        /// The port.
        port: u16,
        /// The path, such as `/readyz`.
        path: String,
        /// Path of the certificate of the authority on the host.
        ca_file: String,
        /// Path of the client certificate on the host, if one is needed.
        certificate_file: Option<String>,
        /// Path of the client key on the host.
        key_file: Option<String>,
    },
    /// A Unix socket accepts a connection.
    Socket {
        /// Its path.
        path: String,
    },
    /// A file exists.
    Path {
        /// Its path.
        path: String,
    },
    /// The nodes exist and are `Ready`, according to the API server of this host.
    #[serde(rename_all = "camelCase")]
    NodesReady {
        /// The nodes' names.
        nodes: Vec<HostName>,
        /// Whether a node that lacks nothing but a network of pods is ready enough.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_lack_network: bool,
    },
    /// The node is not `Ready` any more, or does not exist, according to the API server of this host; or its Lease was not renewed
    /// for 25 s, at least 12 s of them while this was awaited (longer if the kubelet has not reached this API server since its
    /// start). Only for a host that is known not to answer.
    NodeNotReady {
        /// The node.
        node: HostName,
    },
    /// The node of this host works after its last start: the units run, the kubelet is healthy and has
    /// reported the node as `Ready` since its start, and it renewed the Lease of the node after the newest start of the units,
    /// except for kube-proxy and flannel if they restarted together with the kubelet.
    /// With a version, it also reports that one, and no pod is not ready that was ready before.
    #[serde(rename_all = "camelCase")]
    NodeWorks {
        /// The node.
        node: HostName,
        /// The version of the kubelet, if a step started it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<Version>,
        /// The units, the kubelet's among them.
        units: Vec<String>,
        /// The port at which the kubelet reports its health on this host.
        health_port: u16,
        /// The address of the API server.
        address: Ipv4Addr,
        /// The port of the API server.
        port: u16,
        /// Path of the certificate of the authority on the host.
        ca_file: String,
        /// Path of the file with the certificate and the key of the kubelet.
        identity_file: String,
        /// Whether a node that lacks nothing but a network of pods is ready enough.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_lack_network: bool,
    },
    /// All replicas of a Deployment are updated and available, according to the API server of this host.
    DeploymentAvailable {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A DNS server answers an `A` query for the name.
    Dns {
        /// The server's address.
        server: Ipv4Addr,
        /// The name, fully qualified.
        name: String,
    },
    /// A DNS server of the cluster resolves names outside of it as well as the name servers of the host do. The
    /// check passes if none of those answers the host either, because then there is nothing to compare with.
    DnsUpstream {
        /// The server's address.
        server: Ipv4Addr,
        /// The file that lists the name servers of the host.
        resolv_conf: String,
    },
    /// Every ready pod of the DNS of the cluster on another node answers this host. Each query and its answer cross
    /// the overlay network of the pods.
    Overlay {
        /// The node of this host.
        node: HostName,
        /// The name to ask for, fully qualified.
        name: String,
    },
    /// All tokens that the kubelet gives to the pods of this host were made after the kubelet started, and this has been so
    /// for a minute: programs read their token again once a minute.
    #[serde(rename_all = "camelCase")]
    PodTokens {
        /// The unit of the kubelet.
        unit: String,
    },
    /// A program takes the arguments. It is asked once, and not started. The failure of this check is not repeated.
    AcceptsArguments {
        /// The path of the program on the host.
        program: String,
        /// The arguments, each with its value.
        arguments: Vec<String>,
    },
    /// A program of Kubernetes knows its feature gates, and can set them. It is asked once, and not started. The failure of this
    /// check is not repeated.
    KnowsFeatureGates {
        /// The path of the program on the host.
        program: String,
        /// The argument with the gates, and what else decides which gates there are.
        arguments: Vec<String>,
    },
    /// All listed hosts accept connections from this host on the port.
    Reachable {
        /// The other hosts.
        addresses: Vec<HostAddress>,
        /// The port.
        port: u16,
    },
}
