//! The command line and the environment. No other module reads them.

pub(crate) mod adopt;
pub(crate) mod approved_plan;
pub(crate) mod bundle;
pub(crate) mod certs;
pub(crate) mod cli;
pub(crate) mod cloud;
pub(crate) mod cluster;
pub(crate) mod common_change;
pub(crate) mod config;
pub(crate) mod contact;
pub(crate) mod day;
pub(crate) mod drain;
pub(crate) mod environment;
pub(crate) mod etcd;
pub(crate) mod etcd_hosts;
pub(crate) mod format;
pub(crate) mod ignore;
pub(crate) mod inventory;
pub(crate) mod lab;
pub(crate) mod login;
pub(crate) mod meta;
pub(crate) mod missing;
pub(crate) mod module;
pub(crate) mod node;
pub(crate) mod only_parts;
pub(crate) mod pre_apply;
pub(crate) mod precheck;
pub(crate) mod rolling;
pub(crate) mod scale;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod typed;
pub(crate) mod upgrade;
pub(crate) mod verbosity;

pub(crate) use cli::{CliCommand, CommandLine};
pub(crate) use environment::CliEnvironment;
pub(crate) use format::{Format, FormatFlag};
pub(crate) use typed::Typed;
pub(crate) use verbosity::{ProgressForm, VerbosityFlags};

#[cfg(test)]
mod tests;
