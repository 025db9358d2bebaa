//! The keys and certificates of a cluster: its authorities, the leaves that they sign, the key pair of
//! service account tokens, and the admin's kubeconfig.
//!
//! It may not decide who gets a certificate: a plan names each as a [`kubeon_wire::SecretRef`], and only
//! `apply` asks for its text. Keys come from the operating system's random numbers, never from a plan.
//!
//! ```text
//!   secret/<cluster>/ca-kubernetes.pem    ─┐
//!                    ca-etcd.pem           ├─► ClusterPki ──► resolve(SecretRef) ──► PEM text
//!                    ca-front-proxy.pem    │              └─► kubeconfig(…)
//!                    ca-kubelet-serving.pem│
//!                    sa.pem               ─┘   one file per key: it cannot be torn from its certificate
//! ```

mod authority;
mod keyfile;
mod kubeconfig;
mod leaf;
mod pki;

pub use kubeconfig::{Server, kubeconfig};
pub use leaf::is_due;
pub use pki::{ClusterPki, PkiError};

#[cfg(test)]
mod tests;
