//! A real etcd and a real kube-apiserver on loopback, and a proxy in front of them that makes requests fail on
//! demand. For tests and benchmarks.
//!
//! ```text
//!   client under test ──► FaultProxy ──► kube-apiserver ──► etcd          programs: from the bundle in the user's cache
//!        │                 counts, fails,     ▲      ▲                    data: in memory, or on disk with fsync
//!        │                 hangs, cuts        │      └── kube-controller-manager, on request
//!        └────────────── or directly ─────────┘
//! ```
//!
//! A collector records the traces that programs send. An object store keeps snapshots. A provider of OpenID Connect logs users in.
//! A fake cloud has route tables, and checks signatures.
//!
//! Every program ends with the process that started it, even by SIGKILL, and listens on loopback only. There is no
//! kubelet: Pods stay pending.

mod api_server;
mod arguments;
mod collector;
mod credentials;
mod error;
mod fake_cloud;
mod folder;
mod go_programs;
mod identity_provider;
mod object_store;
mod objects;
mod ports;
mod previous_commit;
mod process;
mod programs;
mod proxy;
mod stored_objects;

pub use api_server::{ApiServerOptions, TestApiServer};
pub use collector::{Collector, ReceivedSpan};
pub use error::EnvtestError;
pub use fake_cloud::{CloudRoute, FakeCloud};
pub use go_programs::{gitops_program, history_program};
pub use identity_provider::TestIdentityProvider;
pub use object_store::TestObjectStore;
pub use ports::free_port;
pub use previous_commit::previous_commit;
pub use programs::{program, program_of};
pub use proxy::{FaultProxy, FaultRule, ProxyFault, ProxyRequest, RequestMatcher, RuleId, RuleMatches};
