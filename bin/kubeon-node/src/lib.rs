//! The node program: executes the steps of a plan on its host, reports the facts of the host, and resets it.
//!
//! ```text
//!   Request lines, part bytes ──► apply ──► files, units, images, objects of this host
//!                 Event lines ◄────┘  └───► journal, claim        /var/lib/kubeon
//!                       Facts ◄── facts ◄── journal, claim, certificates, API server, etcd
//!               systemd timer ──► renewal ──► certificates of this host, journal
//! ```
//!
//! It makes no decision about the desired state: a step contains everything that it needs. The program
//! connects to other hosts only to check that they answer and to get parts, and it writes only under the lock and the claim of
//! [`fence`].

pub mod api;
pub mod api_service;
mod backoff;
pub mod certificate;
pub mod checks;
pub mod client_threads;
pub mod cluster_record;
pub mod command;
pub mod drift;
pub mod durable;
pub mod etcd;
pub mod events;
pub mod facts;
pub mod failure;
pub mod fence;
pub mod firewall;
pub mod forwarding;
pub mod host;
pub mod https;
pub mod input;
pub mod job;
pub mod journal;
pub mod kernel_parameter;
pub mod ops;
pub mod original;
pub mod packet_tables;
pub mod parts;
pub mod paths;
pub mod program_server;
pub mod renewal;
pub mod reset;
pub mod root;
pub mod session;
pub mod static_pods;
pub mod systemd;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
pub(crate) mod testing_api;
pub mod ticket_lock;
pub mod timeout_extension;
pub mod units;
pub mod unpack;
