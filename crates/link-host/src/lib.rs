//! The way to a host: one SSH login per host for the life of the process, shared by everything that is
//! done there at once.
//!
//! It may not decide what is done on a host, and holds no state of a cluster. Nothing else links SSH.
//!
//! ```text
//!                    ┌─ facts (probe.sh on stdin, stores nothing)
//!   SshHosts ─ pool ─┼─ open ──► kubeon-node apply ◄─► NodeSession (many steps at once)
//!   one login a host ├─ exec   a command, its streams apart
//!                    └─ copy   a tar stream, checked by SHA-256, moved into place
//! ```
//!
//! A host key is compared before anything secret is sent. Passwords never enter an argument list.

mod auth;
mod connection;
mod copy;
mod exec;
mod facts;
mod failure;
mod host_keys;
mod known_hosts;
mod login;
mod node;
mod pool;
mod probe;
mod remote;
mod sender;
mod session;
mod shell;

pub use copy::{Copied, Copy};
pub use exec::{Command, Exit, Input, Stream};
pub use host_keys::{HostKeyError, HostKeys, KeyPlace, Policy, SeenKey};
pub use login::{Login, Method};
pub use node::NodeProgram;
pub use pool::{Limits, Settings, SshHosts};
pub use session::NodeSession;
