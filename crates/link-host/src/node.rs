//! Starts the node program on a host, and installs it before if it is missing.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use async_trait::async_trait;
use kubeon_api::{Arch, Digest, HostAddress};
use kubeon_ports::{ActHost, HostSession};
use kubeon_wire::{Category, Fence, StepFailure};

use crate::failure::failure;
use crate::pool::SshHosts;
use crate::program_install::{ProgramInstall, ProgramOffer};
use crate::session::{NodeSession, Opening};

/// Starts the program for this machine: that with the digest `$1` on x86_64, `$2` on aarch64. Ends with 127 when it is missing
/// or damaged.
const START: &str = "case $(uname -m) in x86_64) s=$1 ;; aarch64) s=$2 ;; *) exit 127 ;; esac
d=/var/lib/kubeon/node; n=kubeon-node-$s
{ [ -x \"$d/$n\" ] && echo \"$s  $d/$n\" | sha256sum -c - >/dev/null 2>&1; } || exit 127
[ \"$(readlink \"$d/current\")\" = \"$n\" ] || ln -sfn \"$n\" \"$d/current\"
exec \"$d/$n\" apply";

/// Stands for the digest of an architecture without a program.
const NO_PROGRAM: &str = "none";

#[async_trait]
impl ActHost for SshHosts {
    async fn open(&self, host: HostAddress, fence: &Fence) -> Result<Arc<dyn HostSession>, StepFailure> {
        Ok(Arc::new(self.open_session(host, fence).await?))
    }
}

impl SshHosts {
    /// Lets these hosts, which have no node program of this pool yet, get it from each other, at their addresses in the cluster's
    /// network. A host that cannot gets it from this machine, and so do few hosts.
    pub fn spread_programs(&self, hosts: BTreeMap<HostAddress, Ipv4Addr>) {
        self.0.spread.begin(hosts);
    }

    /// Whether this is the digest of a node program of this pool.
    #[must_use]
    pub fn has_program(&self, digest: &Digest) -> bool {
        self.0.settings.node_programs.iter().any(|program| program.digest() == digest)
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
        let install = ProgramInstall { pool: &self.0, connection: &connection, rights: &rights };
        // A host whose facts show no program need not be asked to start it.
        let mut installs = self.0.probed.lock().get(&host).is_some_and(|tools| !tools.has_program);
        let mut offer = None;
        for _ in 0..2 {
            if installs {
                offer = install.run().await?;
                if let Some(tools) = self.0.probed.lock().get_mut(&host) {
                    tools.has_program = true;
                }
            }
            let remote = connection.start(&rights, START, &digests).await?;
            match NodeSession::open(Arc::clone(&connection), remote, fence).await? {
                Opening::Opened(session) => {
                    if let Some(offer) = offer {
                        ProgramOffer::serve(offer, &connection, &rights).await;
                    }
                    return Ok(session);
                }
                Opening::Missing if installs => break,
                Opening::Missing => installs = true,
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
