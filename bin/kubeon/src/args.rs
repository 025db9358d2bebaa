//! The command line and the environment: the only place that reads either.

pub mod bundle;
pub mod cli;
pub mod cluster;
pub mod contact;
pub mod day;
pub mod drain;
pub mod environment;
pub mod format;
pub mod ignore;
pub mod inventory;
pub mod lab;
pub mod later;
pub mod login;
pub mod meta;
pub mod missing;
pub mod node;
pub mod pre_apply;
pub mod precheck;
pub mod scale;
pub mod settings;
pub mod state;
pub mod typed;
pub mod verbosity;

pub use cli::{CliCommand, CommandLine};
pub use contact::ContactFlags;
pub use environment::CliEnvironment;
pub use format::{Format, FormatFlag};
pub use typed::Typed;
pub use verbosity::{ProgressForm, VerbosityFlags};

#[cfg(test)]
mod tests;
