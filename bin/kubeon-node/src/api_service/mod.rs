//! The two sides of the load balancer `updater`, a Service of the cluster whose endpoints are the live API servers.
//!
//! ```text
//!   master:  API server ─ watch of default/kubernetes ─► endpoints of kube-system/apiserver
//!   worker:  the Service answers ─► the API's name leads to it
//!            it does not         ─► the name leads to a master that answers, by the stand-in in the hosts file
//! ```

mod publish;
mod reach;

pub use publish::publish;
pub use reach::{end, reach};
