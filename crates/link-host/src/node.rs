//! Puts the node program on a host and starts it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubeon_api::{Digest, HostAddress};
use kubeon_ports::{ActHost, HostSession};
use kubeon_wire::{Category, Fence, StepFailure};
use sha2::{Digest as _, Sha256};

use crate::connection::Connection;
use crate::exec::Input;
use crate::failure::{category_of, failure, last_lines};
use crate::pool::SshHosts;
use crate::session::{NodeSession, Opening};
use crate::shell::Rights;

/// Starts the program `$1`, unless it is missing or not what it should be: then it ends with 127.
const START: &str = "d=/var/lib/kubeon/node; n=kubeon-node-$1
{ [ -x \"$d/$n\" ] && echo \"$1  $d/$n\" | sha256sum -c - >/dev/null 2>&1; } || exit 127
[ \"$(readlink \"$d/current\")\" = \"$n\" ] || ln -sfn \"$n\" \"$d/current\"
exec \"$d/$n\" apply";

/// Takes the program from standard input, checks it, and puts it in place in one step.
const INSTALL: &str = "set -eu; umask 022; d=/var/lib/kubeon/node; n=kubeon-node-$1
mkdir -p \"$d\"; t=\"$d/.new-$$\"; trap 'rm -f \"$t\"' EXIT
cat > \"$t\"
echo \"$1  $t\" | sha256sum -c - >/dev/null 2>&1 || { echo 'the bytes that arrived have another SHA-256' >&2; exit 65; }
chmod 0755 \"$t\"; sync \"$t\" 2>/dev/null || sync
mv -f \"$t\" \"$d/$n\"; ln -sfn \"$n\" \"$d/current\"
for f in \"$d\"/kubeon-node-*; do [ \"$f\" = \"$d/$n\" ] || rm -f \"$f\"; done";

/// Exit code of [`INSTALL`] for bytes that are not the program.
const OTHER_BYTES: u32 = 65;

/// Time for the upload, long enough for a slow line.
const UPLOAD: Duration = Duration::from_secs(300);

/// The node program on the control machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeProgram {
    path: PathBuf,
    digest: Digest,
}

impl NodeProgram {
    /// Reads the file once, for its digest.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        let mut sum = Sha256::new();
        std::io::copy(&mut std::fs::File::open(path)?, &mut HashWriter(&mut sum))?;
        let digest = hex::encode(sum.finalize()).parse().map_err(std::io::Error::other)?;
        Ok(Self { path: path.to_owned(), digest })
    }

    /// SHA-256 of the program, also in its name on a host.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }
}

/// Feeds what is written into a sum.
pub(crate) struct HashWriter<'a>(pub(crate) &'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[async_trait]
impl ActHost for SshHosts {
    async fn open(&self, host: HostAddress, fence: &Fence) -> Result<Arc<dyn HostSession>, StepFailure> {
        Ok(Arc::new(self.open_session(host, fence).await?))
    }
}

impl SshHosts {
    /// What [`ActHost::open`] does, with the session's own type.
    ///
    /// # Errors
    /// When the host cannot be reached, the program cannot be put there or started, or the fence is refused.
    pub async fn open_session(&self, host: HostAddress, fence: &Fence) -> Result<NodeSession, StepFailure> {
        let program = self.0.settings.node_program.as_ref().ok_or_else(|| {
            failure(
                Category::Unsupported,
                format!("no node program was given, so nothing can be done on {host}"),
            )
        })?;
        let connection = self.0.connection(host).await?;
        let rights = connection.rights().await?;
        let sha = program.digest.as_str();
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
                "the node program was put on {host} but cannot be run there; is /var/lib mounted with noexec?"
            ),
        ))
    }
}

async fn install(connection: &Connection, rights: &Rights, program: &NodeProgram) -> Result<(), StepFailure> {
    let host = connection.host;
    let file = tokio::fs::File::open(&program.path).await.map_err(|error| {
        failure(Category::Failed, format!("cannot read the node program {}: {error}", program.path.display()))
    })?;
    tracing::debug!(%host, digest = %program.digest, "putting the node program in place");
    let input = Input::Reader(Box::pin(file));
    let answer =
        connection.ask(rights, INSTALL, &[program.digest.as_str()], input, (UPLOAD, 64 * 1024)).await?;
    if answer.exit.success() {
        return Ok(());
    }
    let words = answer.words();
    let category = match answer.exit {
        crate::exec::Exit::Code(OTHER_BYTES) => Category::Corrupt,
        _ => category_of(&words),
    };
    let log = last_lines(&words, 20);
    let why = log.last().cloned().unwrap_or_else(|| answer.exit.to_string());
    Err(StepFailure { log, ..failure(category, format!("cannot put the node program on {host}: {why}")) })
}
