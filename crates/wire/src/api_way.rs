//! How a worker finds the API servers behind a Service of the cluster.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The Service of the API servers, in `kube-system`. Its name is that of the seed.
pub const API_SERVICE: &str = "apiserver";
/// The file of a worker that contains its [`ApiWay`].
pub const API_WAY_FILE: &str = "/etc/kubernetes/apiserver-startup.json";
/// The file of a worker that contains the address to which the API's name leads, since the boot.
pub const API_WAY_FOUND: &str = "/run/kubeon/apiserver-address";

/// The way of the programs of a worker to the API servers. They use a name. It leads to the Service, and while the Service does
/// not answer, as after a boot, to a master.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiWay {
    /// The name of the API.
    pub name: String,
    /// The address of the Service.
    pub service: Ipv4Addr,
    /// The port of the Service and of every API server.
    pub port: u16,
    /// The masters' addresses.
    pub masters: Vec<Ipv4Addr>,
}
