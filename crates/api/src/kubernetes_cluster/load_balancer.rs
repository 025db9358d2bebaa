//! How workers reach the masters.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::addresses::Endpoint;
use crate::names::Cidr;

/// The place of the Service of the API servers in the service network, as in the seed.
const API_SERVICE_INDEX: u32 = 15;

/// How workers reach the masters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LoadBalancer {
    /// haproxy on every worker, with the masters as backends.
    Haproxy,
    /// A Service whose endpoints are the live masters.
    Updater,
    /// An existing load balancer, which kubeon does not manage.
    External {
        /// Its address or name.
        address: Endpoint,
        /// Its port.
        port: u16,
    },
}

impl LoadBalancer {
    /// Address and port of an external load balancer; `None` when kubeon provides the load balancer, or when only a name is
    /// given, which [`Self::unsupported`] refuses.
    #[must_use]
    pub fn external(&self) -> Option<(Ipv4Addr, u16)> {
        match self {
            Self::External { address, port } => Some((address.ip()?, *port)),
            Self::Haproxy | Self::Updater => None,
        }
    }

    /// The address of the Service of the API servers in a service network: its fifteenth.
    #[must_use]
    pub fn service(services: Cidr) -> Option<Ipv4Addr> {
        services.nth(API_SERVICE_INDEX)
    }

    /// The address to which the API's name leads on workers; `None` with haproxy, which each has on its own loopback, and when
    /// [`Self::unsupported`] refuses the load balancer.
    #[must_use]
    pub fn address(&self, services: Cidr) -> Option<Ipv4Addr> {
        match self {
            Self::Haproxy => None,
            Self::External { address, port: _ } => address.ip(),
            Self::Updater => Self::service(services),
        }
    }
}
