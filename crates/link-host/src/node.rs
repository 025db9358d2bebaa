//! Installs the node program on a host and starts it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubeon_api::{Arch, HostAddress};
use kubeon_ports::{ActHost, HostSession};
use kubeon_wire::{Category, Fence, StepFailure};

use crate::command::{CommandInput, Exit};
use crate::connection::Connection;
use crate::failure::{category_of, failure, last_lines};
use crate::node_program::NodeProgram;
use crate::pool::SshHosts;
use crate::remote::CommandOutput;
use crate::session::{NodeSession, Opening};
use crate::shell::Rights;

/// Starts the program for this machine: that with the digest `$1` on x86_64, `$2` on aarch64. Ends with 127 when it is missing
/// or damaged.
const START: &str = "case $(uname -m) in x86_64) s=$1 ;; aarch64) s=$2 ;; *) exit 127 ;; esac
d=/var/lib/kubeon/node; n=kubeon-node-$s
{ [ -x \"$d/$n\" ] && echo \"$s  $d/$n\" | sha256sum -c - >/dev/null 2>&1; } || exit 127
[ \"$(readlink \"$d/current\")\" = \"$n\" ] || ln -sfn \"$n\" \"$d/current\"
exec \"$d/$n\" apply";

/// Prints the host's architecture and, if the host can unpack it, `gzip`.
const ASK: &str = "uname -m; command -v gzip >/dev/null 2>&1 && echo gzip; :";

/// Reads the program `$1` from standard input through `$2`, checks it and moves it into place.
const INSTALL: &str = "set -eu; umask 022; d=/var/lib/kubeon/node; n=kubeon-node-$1
mkdir -p \"$d\"; t=\"$d/.new-$$\"; trap 'rm -f \"$t\"' EXIT
case $2 in gzip) gzip -dc ;; *) cat ;; esac > \"$t\"
echo \"$1  $t\" | sha256sum -c - >/dev/null 2>&1 || { echo 'the received bytes have another SHA-256' >&2; exit 65; }
chmod 0755 \"$t\"; sync \"$t\" 2>/dev/null || sync
mv -f \"$t\" \"$d/$n\"; ln -sfn \"$n\" \"$d/current\"
for f in \"$d\"/kubeon-node-*; do [ \"$f\" = \"$d/$n\" ] || rm -f \"$f\"; done";

/// Exit code of [`INSTALL`] when the received bytes have another digest.
const WRONG_DIGEST: u32 = 65;

/// Stands for the digest of an architecture without a program.
const NO_PROGRAM: &str = "none";

/// Time limit for the question after the host's architecture.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for the upload, long enough for a slow network.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(300);

#[async_trait]
impl ActHost for SshHosts {
    async fn open(&self, host: HostAddress, fence: &Fence) -> Result<Arc<dyn HostSession>, StepFailure> {
        Ok(Arc::new(self.open_session(host, fence).await?))
    }
}

impl SshHosts {
    /// Sends the program for the host's architecture, packed if the host can unpack it.
    async fn install(&self, connection: &Connection, rights: &Rights) -> Result<(), StepFailure> {
        let host = connection.host;
        let (program, unpacks) = program_for(connection, rights, &self.0.settings.node_programs).await?;
        let input = if unpacks { self.0.packed.open(program).await } else { program.open().await };
        let input = input
            .map_err(|error| failure(Category::Failed, format!("cannot read the node program: {error}")))?;
        tracing::debug!(%host, digest = %program.digest(), packed = unpacks, "installing the node program");
        let arguments = [program.digest().as_str(), if unpacks { "gzip" } else { "plain" }];
        let bounds = (UPLOAD_TIMEOUT, 64 * 1024);
        outcome(host, &connection.run_script(rights, INSTALL, &arguments, input, bounds).await?)
    }

    /// The same as [`ActHost::open`], with the session's own type.
    ///
    /// # Errors
    /// When the host cannot be reached, the program cannot be installed or started, or the fence is refused.
    pub async fn open_session(&self, host: HostAddress, fence: &Fence) -> Result<NodeSession, StepFailure> {
        let programs = &self.0.settings.node_programs;
        if programs.is_empty() {
            let cause = format!("no node program is configured, so no step can run on {host}");
            return Err(failure(Category::Unsupported, cause));
        }
        let connection = self.0.connection(host).await?;
        let rights = connection.rights().await?;
        let digests = Arch::ALL.map(|arch| {
            let program = programs.iter().find(|program| program.arch() == arch);
            program.map_or(NO_PROGRAM, |program| program.digest().as_str())
        });
        for installed in [false, true] {
            let remote = connection.start(&rights, START, &digests).await?;
            match NodeSession::open(Arc::clone(&connection), remote, fence).await? {
                Opening::Opened(session) => return Ok(session),
                Opening::Missing if installed => break,
                Opening::Missing => self.install(&connection, &rights).await?,
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

/// Finds the program for a host, and whether the host can unpack it.
async fn program_for<'a>(
    connection: &Connection,
    rights: &Rights,
    programs: &'a [NodeProgram],
) -> Result<(&'a NodeProgram, bool), StepFailure> {
    let bounds = (ASK_TIMEOUT, 64 * 1024);
    let answer = connection.run_script(rights, ASK, &[], CommandInput::Nothing, bounds).await?;
    let answer = String::from_utf8_lossy(&answer.out);
    let mut lines = answer.lines().map(str::trim);
    let machine = lines.next().unwrap_or_default();
    let arch = machine.parse::<Arch>().ok();
    let program = programs.iter().find(|program| Some(program.arch()) == arch).ok_or_else(|| {
        let cause =
            format!("{} is a machine of {machine}, for which there is no node program", connection.host);
        failure(Category::Unsupported, cause)
    })?;
    Ok((program, lines.any(|line| line == "gzip")))
}

fn outcome(host: HostAddress, answer: &CommandOutput) -> Result<(), StepFailure> {
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
