//! A real etcd and a real kube-apiserver on loopback, and a proxy before them that fails on demand. For tests and
//! benchmarks: what decides about clusters should meet the API server itself, and its worst days, before it meets users.
//!
//! ```text
//!   client under test ──► FaultProxy ──► kube-apiserver ──► etcd          programs: from the bundle in the user's cache
//!        │                 counts, fails,     ▲      ▲                    data: in memory, or on disk with fsync
//!        │                 hangs, cuts        │      └── kube-controller-manager, if asked for
//!        └────────────── or straight ─────────┘
//! ```
//!
//! A collector keeps what programs tell of their traces.
//!
//! Everything that is started here dies with the process that started it, even by SIGKILL, and nothing listens beyond
//! loopback. There is no kubelet: Pods stay pending.

mod api_server;
mod arguments;
mod collector;
mod credentials;
mod error;
mod folder;
mod objects;
mod process;
mod programs;
mod proxy;

pub use api_server::{ApiServer, Options};
pub use collector::{Collector, Sent};
pub use error::EnvtestError;
pub use programs::{program, program_of};
pub use proxy::{Fault, FaultProxy, FaultRule, Met, Request, RuleId, When};
