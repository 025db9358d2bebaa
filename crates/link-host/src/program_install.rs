//! Installs the node program on a host: from this machine, or from another host that has it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use kubeon_api::{Arch, Digest, HostAddress};
use kubeon_wire::{Category, StepFailure};
use tokio::time::timeout;

use crate::command::{CommandInput, Exit};
use crate::connection::Connection;
use crate::failure::{category_of, failure, last_lines};
use crate::node_program::NodeProgram;
use crate::pool::{Pool, SshHosts};
use crate::probed_tools::ProbedTools;
use crate::program_spread::SpreadPermit;
use crate::remote::{CommandOutput, Remote};
use crate::shell::Rights;

/// Prints the host's architecture, and the names of the programs that the host has and [`INSTALL`] may use.
const ASK: &str =
    "uname -m; for p in gzip bash timeout; do command -v $p >/dev/null 2>&1 && echo $p; done; :";

/// Gets the program `$1`, checks it and moves it into place. It comes from standard input, packed or not, or packed from the host
/// `$4` at port `$5`, as `$2` says. `$3` says whether to keep the packed program for other hosts. Files of interrupted
/// installations are removed. What answers at another host is not known before its digest is compared: it fills at most 512 MiB of
/// the disk (a shell that counts in 1 KiB: 1 GiB).
const INSTALL: &str = "set -eu; umask 022; d=/var/lib/kubeon/node; n=kubeon-node-$1; k=$3
mkdir -p \"$d\"; t=\"$d/.new-$$\"
for f in \"$d\"/.new-*; do p=${f##*/.new-}; kill -0 \"${p%.gz}\" 2>/dev/null || rm -f \"$f\"; done
trap 'rm -f \"$t\" \"$t.gz\"' EXIT
unpack() { if [ \"$k\" = keep ]; then tee \"$t.gz\" | gzip -dc > \"$t\"; else gzip -dc > \"$t\"; fi; }
case $2 in
host) ulimit -f 1048576 2>/dev/null || :
timeout 3 bash -c 'exec 3<>\"/dev/tcp/$0/$1\"' \"$4\" \"$5\" 2>/dev/null || { echo \"$4 does not answer at port $5\" >&2; exit 66; }
timeout 30 bash -c 'exec 3<>\"/dev/tcp/$0/$1\" && echo program >&3 && exec cat <&3' \"$4\" \"$5\" | unpack || exit 66 ;;
gzip) unpack ;;
*) cat > \"$t\" ;;
esac
echo \"$1  $t\" | sha256sum -c - >/dev/null 2>&1 || { echo 'the received bytes have another SHA-256' >&2; exit 65; }
chmod 0755 \"$t\"; sync \"$t\" 2>/dev/null || sync
mv -f \"$t\" \"$d/$n\"; ln -sfn \"$n\" \"$d/current\"
for f in \"$d\"/kubeon-node-*; do [ \"$f\" = \"$d/$n\" ] || rm -f \"$f\"; done
[ \"$k\" != keep ] || mv -f \"$t.gz\" \"$d/$n.gz\"";

/// Exit code of [`INSTALL`] when the received bytes have another digest.
const WRONG_DIGEST: u32 = 65;

/// Exit code of [`INSTALL`] when another host did not serve the program.
const NOT_SERVED: u32 = 66;

/// Serves the packed program `$1` to other hosts at a free port of the address `$2`. Prints the port, removes the packed program,
/// and ends with its input.
const SERVE: &str =
    "d=/var/lib/kubeon/node; n=kubeon-node-$1; exec \"$d/$n\" serve-program \"$2\" \"$d/$n.gz\"";

/// Time limit for the question after the host's architecture.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for the upload, long enough for a slow network.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(300);

/// Time limit for a host to begin to serve the program.
const SERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of output of a script.
const OUTPUT_LIMIT: usize = 64 * 1024;

impl SshHosts {
    /// Remembers the tools of a host. For a host that will get the program packed, it is packed meanwhile.
    pub(crate) fn remember_tools(&self, host: HostAddress, tools: ProbedTools) {
        let arch = tools.machine.parse::<Arch>().ok();
        let programs = &self.0.settings.node_programs;
        let program = programs.iter().find(|program| Some(program.arch()) == arch).cloned();
        if let Some(program) = program.filter(|_| !tools.has_program && tools.has("gzip")) {
            let pool = Arc::clone(&self.0);
            tokio::spawn(async move {
                if let Err(error) = pool.packed.open(&program).await {
                    // The installation reports it.
                    tracing::debug!(%error, "the node program cannot be packed");
                }
            });
        }
        self.0.probed.lock().insert(host, tools);
    }
}

/// What a host needs, and what it has.
struct HostTools<'a> {
    program: &'a NodeProgram,
    /// It unpacks the program.
    gzip: bool,
    /// It can get the program from another host.
    connects: bool,
}

/// The installation of the node program on one host.
pub(crate) struct ProgramInstall<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) connection: &'a Connection,
    pub(crate) rights: &'a Rights,
}

impl ProgramInstall<'_> {
    /// Installs the program for the host's architecture. Of many hosts, most get it from others. Those that cannot get it from this
    /// machine. Returns what the host may serve to others.
    pub(crate) async fn run(&self) -> Result<Option<ProgramOffer>, StepFailure> {
        let tools = self.find().await?;
        let (host, digest) = (self.connection.host, tools.program.digest());
        let permit = if tools.connects { self.pool.spread.join(digest, host).await } else { None };
        let Some(mut permit) = permit else { return self.send(&tools, false).await.map(|()| None) };
        let serves_at = permit.serves_at();
        let keeps = serves_at.is_some();
        let received = match permit.source() {
            Some(source) => self.receive(digest, source, keeps).await?,
            None => false,
        };
        if !received {
            permit.source_failed();
            self.send(&tools, keeps).await?;
        }
        Ok(serves_at.map(|address| ProgramOffer { permit, digest: digest.clone(), address }))
    }

    /// Finds the program for the host, and what the host can do with it. The host is asked if its facts were not read.
    async fn find(&self) -> Result<HostTools<'_>, StepFailure> {
        let known = self.pool.probed.lock().get(&self.connection.host).cloned();
        let probed = match known {
            Some(probed) => probed,
            None => self.ask().await?,
        };
        let arch = probed.machine.parse::<Arch>().ok();
        let programs = &self.pool.settings.node_programs;
        let program = programs.iter().find(|program| Some(program.arch()) == arch).ok_or_else(|| {
            let (host, machine) = (self.connection.host, &probed.machine);
            let cause = format!("{host} is a machine of {machine}, for which there is no node program");
            failure(Category::Unsupported, cause)
        })?;
        let gzip = probed.has("gzip");
        let connects = gzip && probed.has("bash") && probed.has("timeout");
        Ok(HostTools { program, gzip, connects })
    }

    async fn ask(&self) -> Result<ProbedTools, StepFailure> {
        let bounds = (ASK_TIMEOUT, OUTPUT_LIMIT);
        let answer = self.connection.run_script(self.rights, ASK, &[], CommandInput::Nothing, bounds).await?;
        let answer = String::from_utf8_lossy(&answer.out);
        let mut lines = answer.lines().map(|line| line.trim().to_owned());
        let machine = lines.next().unwrap_or_default();
        Ok(ProbedTools { machine, tools: lines.collect(), has_program: false })
    }

    /// Sends the program from this machine, packed if the host can unpack it.
    async fn send(&self, tools: &HostTools<'_>, keeps: bool) -> Result<(), StepFailure> {
        let (host, HostTools { program, gzip, .. }) = (self.connection.host, tools);
        let input = if *gzip { self.pool.packed.open(program).await } else { program.open().await };
        let input = input
            .map_err(|error| failure(Category::Failed, format!("cannot read the node program: {error}")))?;
        tracing::debug!(%host, digest = %program.digest(), packed = gzip, "sending the node program");
        let arguments = [program.digest().as_str(), if *gzip { "gzip" } else { "plain" }, keep_word(keeps)];
        outcome(host, &self.install(&arguments, input).await?)
    }

    /// Lets the host get the program from another one. Returns whether it did; if not, this is no fault of the host itself.
    async fn receive(&self, digest: &Digest, source: SocketAddrV4, keeps: bool) -> Result<bool, StepFailure> {
        let host = self.connection.host;
        tracing::debug!(%host, %digest, %source, "getting the node program from another host");
        let (address, port) = (source.ip().to_string(), source.port().to_string());
        let arguments = [digest.as_str(), "host", keep_word(keeps), address.as_str(), port.as_str()];
        let answer = self.install(&arguments, CommandInput::Nothing).await?;
        if let Exit::Code(NOT_SERVED | WRONG_DIGEST) = answer.exit {
            let why = answer.stderr_text();
            tracing::info!(%host, %source, why = why.trim(), "the host gets the node program from this machine");
            return Ok(false);
        }
        outcome(host, &answer).map(|()| true)
    }

    async fn install(&self, arguments: &[&str], input: CommandInput) -> Result<CommandOutput, StepFailure> {
        let bounds = (UPLOAD_TIMEOUT, OUTPUT_LIMIT);
        self.connection.run_script(self.rights, INSTALL, arguments, input, bounds).await
    }
}

/// A host that has the program and may serve it to others. It begins after its own session: a host may allow few sessions on its
/// connection.
pub(crate) struct ProgramOffer {
    permit: SpreadPermit,
    digest: Digest,
    address: Ipv4Addr,
}

impl ProgramOffer {
    /// Lets the host serve the program as long as others need it. A host that cannot is no failure.
    pub(crate) async fn serve(self, connection: &Connection, rights: &Rights) {
        match self.begin(connection, rights).await {
            Ok((serving, port)) => {
                self.permit.serves(SocketAddrV4::new(self.address, port), Box::new(serving));
            }
            Err(failure) => {
                let host = connection.host;
                tracing::info!(%host, %failure, "the host serves the node program to no other one");
                self.permit.serves_nothing();
            }
        }
    }

    /// Starts the server. It ends when the returned command is dropped. Returns its port.
    async fn begin(&self, connection: &Connection, rights: &Rights) -> Result<(Remote, u16), StepFailure> {
        let address = self.address.to_string();
        let mut serving = connection.start(rights, SERVE, &[self.digest.as_str(), &address]).await?;
        let answer = async {
            let mut printed = Vec::new();
            while !printed.contains(&b'\n') && printed.len() < OUTPUT_LIMIT {
                let Some(bytes) = serving.out().await else { break };
                printed.extend(bytes);
            }
            String::from_utf8_lossy(&printed).trim().parse::<u16>().ok()
        };
        let port = timeout(SERVE_TIMEOUT, answer).await.ok().flatten();
        let cause = || format!("{} does not listen on {address}", connection.host);
        let port = port.ok_or_else(|| failure(Category::Failed, cause()))?;
        Ok((serving, port))
    }
}

fn keep_word(keeps: bool) -> &'static str {
    if keeps { "keep" } else { "drop" }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_tells_how_the_node_program_can_be_installed() {
        let probed =
            ProbedTools::of("clock=1\narchitecture=x86_64\ninstall_tools= gzip timeout\nend=1\n", false);
        assert_eq!(probed.machine.parse::<Arch>().ok(), Some(Arch::Amd64));
        assert_eq!(["gzip", "bash", "timeout"].map(|tool| probed.has(tool)), [true, false, true]);
        assert!(!ProbedTools::of("install_tools=\n", true).has("gzip"));
    }
}
