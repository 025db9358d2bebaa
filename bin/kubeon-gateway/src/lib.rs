//! The REST server of a meta cluster. It holds no credentials of hosts: it writes with the identity of its caller, and it
//! reads from its own watches after the API server has authorized the caller.
//!
//! ```text
//!   request ─► TLS ─► caller (token or certificate) ─┬─► write: the API server, as the caller
//!                                                    └─► read: access review ─► fleet ◄─ watches
//! ```

#![recursion_limit = "256"]

mod access;
mod answer;
pub mod args;
mod authenticate;
mod caller;
mod connections;
mod description;
mod fleet;
mod gateway;
mod job_log;
mod limits;
mod log_lines;
mod meta_api;
mod namespaces;
mod oidc;
pub mod parsers;
mod request_error;
mod router;
mod server;
mod tls;
mod tokens;
mod v1;
mod v2;
mod write_timeout;

pub use namespaces::{CallerNamespaces, NamespaceRule};
pub use oidc::OidcOptions;
pub use router::openapi;
pub use server::{GatewayLimits, GatewayOptions, run};
