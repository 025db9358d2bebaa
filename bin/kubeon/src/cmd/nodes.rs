//! What `exec`, `copy`, `display` and `image` share: a known cluster whose nodes can be talked to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kubeon_api::HostAddress;
use kubeon_link_host::{Command, SshHosts, Stream};

use crate::args::ContactFlags;
use crate::args::login::KnownLoginFlags;
use crate::cli_error::CliError;
use kubeon_engine::contact::{Contact, ContactPurpose};
use kubeon_engine::engine::{Engine, StoredCluster, members};
use kubeon_engine::login_merge::{merge_remembered, refuse_unused_flags};
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::selector::{Member, Selector};

/// Most nodes that are talked to at once.
pub(super) const AT_ONCE: usize = 32;

/// ClusterNodes of a known cluster.
pub(super) struct ClusterNodes {
    /// The way to them.
    pub contact: Contact,
    /// Which.
    pub members: Vec<Member>,
}

impl ClusterNodes {
    /// The nodes that a selector means.
    ///
    /// # Errors
    /// Refuses an unknown cluster, and a selector that means none.
    pub(super) async fn selected(
        engine: &Engine<'_>,
        selector: &str,
        login: &KnownLoginFlags,
        contact: &ContactFlags,
    ) -> Result<Self, CliError> {
        let selector = Selector::parse(selector)?;
        let state = engine.find(Some(&selector.cluster))?;
        let members = selector.choose(&members(&state.spec))?;
        Self::of(engine, &state, members, login, contact).await
    }

    /// These nodes of a cluster.
    ///
    /// # Errors
    /// When keys cannot be read, a person does not accept one, or a flag says something of a role that the cluster lacks.
    pub(super) async fn of(
        engine: &Engine<'_>,
        state: &StoredCluster,
        members: Vec<Member>,
        login: &KnownLoginFlags,
        contact: &ContactFlags,
    ) -> Result<Self, CliError> {
        let (flags, masters) = (LoginRequests::from(login), &state.spec.masters);
        let all = state.spec.hosts().map(|host| host.address);
        let mut said = merge_remembered(all, masters, &flags, &state.logins);
        // Not of these nodes alone: the same flags open the cluster to every command.
        refuse_unused_flags(&flags, masters, &said)?;
        let meant: BTreeSet<_> = members.iter().map(|member| HostAddress::from(member.address)).collect();
        said.retain(|host, _| meant.contains(host));
        let logins = engine.logins(&said)?;
        let contact =
            engine.contact(&state.name, logins, &contact.options(), ContactPurpose::Connect).await?;
        Ok(Self { contact, members })
    }

    /// Does something on every node, `at_once` of them at a time, and collects what failed.
    pub(super) async fn each<F, T>(
        &self,
        at_once: usize,
        act: impl Fn(SshHosts, Member) -> F,
    ) -> Vec<(Member, Result<T, String>)>
    where
        F: Future<Output = Result<T, String>>,
    {
        let act = &act;
        futures::stream::iter(self.members.clone())
            .map(|member| {
                let hosts = self.contact.hosts.clone();
                async move { (member.clone(), act(hosts, member).await) }
            })
            .buffered(at_once.max(1))
            .collect()
            .await
    }
}

/// Runs a command and gives back its standard output.
///
/// # Errors
/// Why it could not be run, or its last words when it failed.
pub(super) async fn output(
    hosts: &SshHosts,
    host: HostAddress,
    line: &str,
    limit: Duration,
) -> Result<String, String> {
    let said = Arc::new(parking_lot::Mutex::new((Vec::new(), Vec::new())));
    let hear = |stream: Stream, bytes: &[u8]| {
        let mut said = said.lock();
        let kept = if stream == Stream::Out { &mut said.0 } else { &mut said.1 };
        kept.extend_from_slice(bytes);
    };
    let command = Command { timeout: Some(limit), ..Command::new(line) };
    let exit = hosts.exec(host, command, &hear).await.map_err(|failure| failure.cause)?;
    let (out, err) = said.lock().clone();
    if exit.success() {
        return Ok(String::from_utf8_lossy(&out).into_owned());
    }
    let words = String::from_utf8_lossy(&err);
    let words = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{exit}: {words}"))
}
