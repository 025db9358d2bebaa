//! The keys and certificates of a cluster: its authorities, the leaves that they sign, the key pair of
//! service account tokens, and the admin's kubeconfig.
//!
//! On a host with the keys of the authorities, [`Renewer`] renews leaves that were issued before.
//!
//! It does not decide who gets a certificate: a plan names each as a [`kubeon_wire::SecretRef`], and only `apply`
//! resolves it. Keys come from the operating system's random numbers, never from a plan.
//!
//! ```text
//!   secret/<cluster>/ca-kubernetes.pem    ─┐
//!                    ca-etcd.pem           ├─► ClusterPki ──► resolve(SecretRef) ──► PEM text
//!                    ca-front-proxy.pem    │              └─► kubeconfig(…)
//!                    ca-kubelet-serving.pem│
//!                    sa.pem               ─┘   key and certificate in one file, so that they always match
//! ```

mod adoption;
mod authority;
mod encryption;
mod error;
mod keyfile;
mod kubeconfig;
mod leaf;
mod pki;
mod private_key;
mod renewal;
mod request;
mod run_authority;
mod serial;

pub use adoption::{MasterAuthority, MasterKeyError, MasterKeys};
pub use error::PkiError;
pub use kubeconfig::{KubeconfigServer, kubeconfig};
pub use leaf::is_due;
pub use pki::ClusterPki;
pub use renewal::{Renewer, belong_together};
pub use request::{CertificateRequest, new_key, request_renewal};
pub use run_authority::RunAuthority;

#[cfg(test)]
mod rotation_tests;
#[cfg(test)]
mod tests;
