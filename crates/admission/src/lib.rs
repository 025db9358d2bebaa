//! Admission: rules for changes of objects that need other objects or the catalogue.
//!
//! ```text
//!   API server ──TLS──► server ──► review (JSON) ──► rules::decide ──► allowed, or: field, reason
//!                          ▲                              │ asks
//!              certificate, stored in a Secret         Lookup: versions, the cluster of an address
//! ```
//!
//! The schema (CEL) is checked first, then the policies of `kubeon-install`; this crate has only the rules that neither can
//! check. `rules` does no I/O. Every replica answers, not only the leader.

mod addresses;
pub mod certificate;
mod certificate_store;
mod clients;
mod lookup;
mod requester;
mod review;
pub mod rules;
mod server;
mod tls;
mod verdict;
mod watch_object;

pub use addresses::{AddressBook, follow};
pub use certificate_store::{CertificateStore, CertificateStoreError};
pub use clients::WebhookClients;
pub use lookup::{Lookup, NotReady, ObjectName};
pub use review::{answer, answer_with_requester};
pub use rules::decide;
pub use server::{CertificateSource, Readiness, ServeError, ServeOptions, WebhookServer, serve};
pub use tls::WebhookTlsError;
pub use verdict::{AdmissionVerdict, Denial};
