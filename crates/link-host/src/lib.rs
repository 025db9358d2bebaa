//! SSH access to hosts: one login per host for the life of the process, shared by all sessions, commands and copies.
//!
//! The crate does not decide which actions run on a host and keeps no state of a cluster. No other crate links SSH.
//!
//! ```text
//!                    ┌─ facts (probe.sh on stdin, stores nothing)
//!   SshHosts ─ pool ─┼─ open ──► kubeon-node apply ◄─► NodeSession (many steps at once)
//!   one login a host ├─ exec   a command with separate output streams
//!                    └─ copy   a tar stream, checked by SHA-256, moved into place
//! ```
//!
//! The host key is compared before anything secret is sent. Passwords are never in an argument list.

mod auth;
mod command;
mod connection;
mod copy;
mod dial_error;
mod exec;
mod facts;
mod failure;
mod firewall;
mod guard;
mod host_key_failure;
mod host_keys;
mod jump;
mod known_hosts;
mod login;
mod node;
mod node_program;
mod packed_program;
mod pool;
mod probe;
mod probed_tools;
mod program_install;
mod program_spread;
mod remote;
mod sender;
mod session;
mod session_state;
mod settings;
mod shell;
mod silence;

pub use command::{Command, CommandInput, Exit, Stream};
pub use copy::{Copied, Copy};
pub use host_keys::{HostKeyError, HostKeyPolicy, HostKeys, SeenKey};
pub use known_hosts::KeySource;
pub use login::{JumpHost, Login, LoginMethod};
pub use node_program::NodeProgram;
pub use pool::SshHosts;
pub use session::NodeSession;
pub use settings::{Limits, SshSettings};
