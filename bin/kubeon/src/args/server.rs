//! Flags of commands that talk to a REST server instead of hosts.

use std::path::PathBuf;

use clap::Args;

use super::format::{Format, FormatFlag};

/// The REST server of a meta cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerFlags {
    /// The REST server of a meta cluster, https://…; works with ls, display, create -f, plan -f, approve, operations and logs
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "KUBEON_SERVER",
        hide_short_help = true,
        help_heading = "Server"
    )]
    pub server: Option<String>,
    /// A file with a token that the meta cluster knows
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "KUBEON_TOKEN_FILE",
        hide_short_help = true,
        help_heading = "Server"
    )]
    pub token_file: Option<PathBuf>,
    /// The certificate authorities of the server, PEM [default: those of this machine]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "KUBEON_SERVER_CA",
        hide_short_help = true,
        help_heading = "Server"
    )]
    pub server_ca: Option<PathBuf>,
    /// The namespace in the meta cluster [default: default; all namespaces for ls]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "KUBEON_SERVER_NAMESPACE",
        hide_short_help = true,
        help_heading = "Server"
    )]
    pub server_namespace: Option<String>,
}

/// `kubeon operations`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubeon --server https://gateway.example.com --token-file token --server-namespace team-a operations shop"
)]
pub(crate) struct OperationsArgs {
    /// Only operations of this cluster
    pub cluster: Option<String>,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// `kubeon approve`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubeon --server https://gateway.example.com --token-file token plan -f shop.yaml\n  kubeon --server https://gateway.example.com --token-file token approve OPERATION"
)]
pub(crate) struct ApproveArgs {
    /// The operation that made the plan
    pub operation: String,
}

/// `kubeon logs`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubeon --server https://gateway.example.com --token-file token logs -f shop\n  kubeon --server https://gateway.example.com --token-file token logs shop --steps"
)]
pub(crate) struct LogsArgs {
    /// The operation, or the cluster whose latest operation is shown
    pub name: String,
    /// Wait for further lines until the operation ends
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Only the last lines
    #[arg(long, value_name = "N")]
    pub tail: Option<u32>,
    /// The steps with their hosts, times and results instead of the log; they are recorded when the operation ends
    #[arg(long, conflicts_with_all = ["follow", "tail"])]
    pub steps: bool,
    /// Format of the steps
    #[arg(
        short = 'o',
        long = "output",
        value_enum,
        value_name = "FORMAT",
        default_value = "table",
        requires = "steps"
    )]
    pub output: Format,
}
