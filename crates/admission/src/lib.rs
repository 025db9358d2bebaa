//! Admission: what a change of an object may not do, where other objects or the catalogue must be looked at.
//!
//! ```text
//!   API server ──TLS──► server ──► review (JSON) ──► rules::decide ──► allowed, or: field, reason
//!                          ▲                              │ asks
//!              certificate, kept in a Secret           Lookup: versions, who holds an address
//! ```
//!
//! The first line is the schema (CEL), the second the policies of `kubeon-install`; only what neither can tell is
//! judged here. `rules` does no I/O. Every replica answers, whether it leads or not.

mod addresses;
pub mod certificate;
mod keeper;
mod lookup;
mod review;
pub mod rules;
mod server;
mod verdict;

pub use addresses::{AddressBook, follow};
pub use keeper::{Keeping, KeepingError};
pub use lookup::{Lookup, NotReady, ObjectName};
pub use review::answer;
pub use rules::decide;
pub use server::{CertificateSource, Readiness, ServeError, ServeOptions, Server, serve};
pub use verdict::{Denial, Verdict};
