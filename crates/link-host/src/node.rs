//! Installs the node program on a host and starts it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubeon_api::HostAddress;
use kubeon_ports::{ActHost, HostSession};
use kubeon_wire::{Category, Fence, StepFailure};

use crate::command::{CommandInput, Exit};
use crate::connection::Connection;
use crate::failure::{category_of, failure, last_lines};
use crate::node_program::NodeProgram;
use crate::pool::SshHosts;
use crate::session::{NodeSession, Opening};
use crate::shell::Rights;

/// Starts the program with the digest `$1`. Ends with 127 when the program is missing or damaged.
const START: &str = "d=/var/lib/kubeon/node; n=kubeon-node-$1
{ [ -x \"$d/$n\" ] && echo \"$1  $d/$n\" | sha256sum -c - >/dev/null 2>&1; } || exit 127
[ \"$(readlink \"$d/current\")\" = \"$n\" ] || ln -sfn \"$n\" \"$d/current\"
exec \"$d/$n\" apply";

/// Reads the program from standard input, checks it and moves it into place.
const INSTALL: &str = "set -eu; umask 022; d=/var/lib/kubeon/node; n=kubeon-node-$1
mkdir -p \"$d\"; t=\"$d/.new-$$\"; trap 'rm -f \"$t\"' EXIT
cat > \"$t\"
echo \"$1  $t\" | sha256sum -c - >/dev/null 2>&1 || { echo 'the received bytes have another SHA-256' >&2; exit 65; }
chmod 0755 \"$t\"; sync \"$t\" 2>/dev/null || sync
mv -f \"$t\" \"$d/$n\"; ln -sfn \"$n\" \"$d/current\"
for f in \"$d\"/kubeon-node-*; do [ \"$f\" = \"$d/$n\" ] || rm -f \"$f\"; done";

/// Exit code of [`INSTALL`] when the received bytes have another digest.
const WRONG_DIGEST: u32 = 65;

/// Time limit for the upload, long enough for a slow network.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(300);

#[async_trait]
impl ActHost for SshHosts {
    async fn open(&self, host: HostAddress, fence: &Fence) -> Result<Arc<dyn HostSession>, StepFailure> {
        Ok(Arc::new(self.open_session(host, fence).await?))
    }
}

impl SshHosts {
    /// The same as [`ActHost::open`], with the session's own type.
    ///
    /// # Errors
    /// When the host cannot be reached, the program cannot be installed or started, or the fence is refused.
    pub async fn open_session(&self, host: HostAddress, fence: &Fence) -> Result<NodeSession, StepFailure> {
        let program = self.0.settings.node_program.as_ref().ok_or_else(|| {
            failure(
                Category::Unsupported,
                format!("no node program is configured, so no step can run on {host}"),
            )
        })?;
        let connection = self.0.connection(host).await?;
        let rights = connection.rights().await?;
        let sha = program.digest().as_str();
        for installed in [false, true] {
            let remote = connection.start(&rights, START, &[sha]).await?;
            match NodeSession::open(Arc::clone(&connection), remote, fence).await? {
                Opening::Opened(session) => return Ok(session),
                Opening::Missing if installed => break,
                Opening::Missing => install(&connection, &rights, program).await?,
            }
        }
        Err(failure(
            Category::Failed,
            format!(
                "the node program was installed on {host} but cannot run; check whether /var/lib is mounted with noexec"
            ),
        ))
    }
}

async fn install(connection: &Connection, rights: &Rights, program: &NodeProgram) -> Result<(), StepFailure> {
    let host = connection.host;
    let file = tokio::fs::File::open(&program.path).await.map_err(|error| {
        failure(Category::Failed, format!("cannot read the node program {}: {error}", program.path.display()))
    })?;
    tracing::debug!(%host, digest = %program.digest(), "installing the node program");
    let input = CommandInput::Reader(Box::pin(file));
    let answer = connection
        .run_script(rights, INSTALL, &[program.digest().as_str()], input, (UPLOAD_TIMEOUT, 64 * 1024))
        .await?;
    if answer.exit.success() {
        return Ok(());
    }
    let stderr = answer.stderr_text();
    let category = match answer.exit {
        Exit::Code(WRONG_DIGEST) => Category::Corrupt,
        _ => category_of(&stderr),
    };
    let log = last_lines(&stderr, 20);
    let why = log.last().cloned().unwrap_or_else(|| answer.exit.to_string());
    Err(StepFailure { log, ..failure(category, format!("cannot install the node program on {host}: {why}")) })
}
