//! Connections to the nodes of a stored cluster, for commands that run on nodes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kubeon_api::{HostAddress, Version};
use kubeon_link_host::{Command, Copied, Copy, SshHosts, Stream};
use parking_lot::Mutex;

use crate::contact::{Contact, ContactPurpose};
use crate::engine::{Engine, StoredCluster, members};
use crate::error::EngineError;
use crate::host_keys::HostKeyOptions;
use crate::login_merge::{merge_remembered, refuse_unused_flags};
use crate::login_request::LoginRequests;
use crate::request_inventory::{InventoryFiles, merge_inventory_logins};
use crate::selector::{Member, Selector};

/// Maximum number of nodes that are used at once.
pub const MAX_CONCURRENT: usize = 32;

/// How to reach the nodes of a stored cluster.
#[derive(Debug, Clone, Default)]
pub struct NodeAccess {
    /// How to log in, from flags.
    pub logins: LoginRequests,
    /// Which host keys are accepted.
    pub host_keys: HostKeyOptions,
    /// How to log in, from an inventory; may name no file.
    pub inventory: InventoryFiles,
}

/// Nodes of a stored cluster.
pub struct ClusterNodes {
    /// The connections to the nodes.
    pub contact: Contact,
    /// The nodes.
    pub members: Vec<Member>,
    /// The version of Kubernetes that they run.
    pub version: Version,
}

/// Shows the progress of a copy.
pub trait CopyObserver: Sync {
    /// The connection to a node is opened.
    fn connecting(&self, node: &str);

    /// `done` of `total` bytes were copied to a node.
    fn copied(&self, node: &str, done: u64, total: u64);

    /// The copy to a node ended; the error is its cause.
    fn ended(&self, node: &str, result: Result<(), &str>);
}

impl ClusterNodes {
    /// The nodes of a selector.
    ///
    /// # Errors
    /// Refuses an unknown cluster, and a selector that matches no node.
    pub async fn selected(
        engine: &Engine<'_>,
        selector: &str,
        access: &NodeAccess,
    ) -> Result<Self, EngineError> {
        let selector = Selector::parse(selector)?;
        let state = engine.find(Some(&selector.cluster))?;
        let members = selector.choose(&members(&state.spec))?;
        Self::of(engine, &state, members, access).await
    }

    /// The given nodes of a cluster.
    ///
    /// # Errors
    /// When keys cannot be read, the user does not accept a key, or a flag is about a role that the cluster
    /// does not have.
    pub async fn of(
        engine: &Engine<'_>,
        state: &StoredCluster,
        members: Vec<Member>,
        access: &NodeAccess,
    ) -> Result<Self, EngineError> {
        let (flags, masters) = (&access.logins, &state.spec.masters);
        let all = state.spec.hosts().map(|host| host.address);
        let requests = merge_remembered(all, masters, flags, &state.logins);
        let mut requests = merge_inventory_logins(&access.inventory, flags, state, requests)?;
        // All hosts count, not only these nodes: the same flags must be valid for every command on the
        // cluster.
        refuse_unused_flags(flags, masters, &requests)?;
        let addresses: BTreeSet<_> = members.iter().map(|member| HostAddress::from(member.address)).collect();
        requests.retain(|host, _| addresses.contains(host));
        let logins = engine.logins(&requests)?;
        let contact = engine.contact(&state.name, logins, &access.host_keys, ContactPurpose::Connect).await?;
        Ok(Self { contact, members, version: state.version.unwrap_or(state.spec.version) })
    }

    /// Calls `act` for every node, for at most `at_once` nodes at a time, and collects the results. A connection has buffers as
    /// large as what was sent at once, so connections to many nodes are closed one by one.
    pub async fn each<F, T>(
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
                async move {
                    let result = act(hosts.clone(), member.clone()).await;
                    if self.members.len() > MAX_CONCURRENT {
                        hosts.disconnect_from(HostAddress::from(member.address)).await;
                    }
                    (member, result)
                }
            })
            .buffered(at_once.max(1))
            .collect()
            .await
    }

    /// Copies a file or folder to all nodes in parallel.
    pub async fn copy(
        &self,
        copy: &Copy,
        observer: &dyn CopyObserver,
    ) -> Vec<(Member, Result<Copied, String>)> {
        self.each(MAX_CONCURRENT, |hosts, member| async move {
            observer.connecting(&member.name);
            let on_progress = |done: u64, total: u64| observer.copied(&member.name, done, total);
            let result = hosts.copy(HostAddress::from(member.address), copy, &on_progress).await;
            let result = result.map_err(|failure| failure.cause);
            observer.ended(&member.name, result.as_ref().map(|_| ()).map_err(String::as_str));
            result
        })
        .await
    }
}

/// Runs a command on a host and returns its standard output.
///
/// # Errors
/// The reason why it could not be run, or the last line of its standard error.
pub async fn command_output(
    hosts: &SshHosts,
    host: HostAddress,
    line: &str,
    limit: Duration,
) -> Result<String, String> {
    output_of(hosts, host, Command { timeout: Some(limit), ..Command::new(line) }).await
}

/// Runs a command with input on a host and returns its standard output.
///
/// # Errors
/// The reason why it could not be run, or the last line of its standard error.
pub(crate) async fn output_of(
    hosts: &SshHosts,
    host: HostAddress,
    command: Command,
) -> Result<String, String> {
    let streams = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let on_output = |stream: Stream, bytes: &[u8]| {
        let mut streams = streams.lock();
        let buffer = if stream == Stream::Out { &mut streams.0 } else { &mut streams.1 };
        buffer.extend_from_slice(bytes);
    };
    let exit = hosts.exec(host, command, &on_output).await.map_err(|failure| failure.cause)?;
    let (out, err) = streams.lock().clone();
    if exit.success() {
        return Ok(String::from_utf8_lossy(&out).into_owned());
    }
    let text = String::from_utf8_lossy(&err);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error output");
    Err(format!("{exit}: {last}"))
}
