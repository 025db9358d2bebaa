//! The API endpoint that kubectl uses by default: a name for all masters if this machine's hosts file is
//! writable, else a master that answers now.
//!
//! ```text
//!   hosts file written ──► https://demo.apiserver.cluster.local:6443   works while any one master is down
//!   else ──► /readyz of every master, in parallel ──► the context demo-h2
//! ```

use std::time::Duration;

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_plan::{DesiredCluster, HostSpec};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::error::EngineError;
use crate::hosts_file::HostsFile;
use crate::kubeconfig::Kubeconfig;
use crate::output::EngineOutput;
use crate::remedy::EngineRemedy;

/// Time limit for the answer of a master.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Extra time for the chosen master after another master has answered.
const PREFERRED_WAIT: Duration = Duration::from_millis(200);
/// Port of the API server.
const PORT: u16 = 6443;

/// The API endpoint of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiEndpoint {
    /// The URL of the context that has the name of the cluster.
    pub url: String,
    /// The context of a master that answers, if the context of the cluster depends on a single master.
    pub master: Option<String>,
}

/// Inputs of the search for an endpoint.
pub struct EndpointSearch<'a> {
    /// The cluster.
    pub spec: &'a DesiredCluster,
    /// The certificate of the authority that signs the masters' certificates, as PEM.
    pub authority: &'a str,
    /// The current context.
    pub chosen: Option<&'a str>,
    /// The hosts file.
    pub hosts_file: HostsFile,
    /// Port of the API server.
    pub port: u16,
}

impl<'a> EndpointSearch<'a> {
    /// A search with this machine's hosts file.
    pub fn new(spec: &'a DesiredCluster, authority: &'a str, chosen: Option<&'a str>) -> Self {
        Self { spec, authority, chosen, hosts_file: HostsFile::of_this_machine(), port: PORT }
    }
}

/// Finds the endpoint. Updates the hosts file if it is writable and differs.
pub async fn find(search: EndpointSearch<'_>, output: &dyn EngineOutput) -> ApiEndpoint {
    let spec = search.spec;
    if spec.masters.len() < 2 || spec.settings.load_balancer.external().is_some() {
        return ApiEndpoint { url: api(spec), master: None };
    }
    let name = format!("{}.{}", spec.name, spec.settings.api_domain);
    let addresses: Vec<_> = spec.masters.iter().map(|host| host.address.ip()).collect();
    let (file, cluster, entry) = (search.hosts_file.clone(), spec.name.to_string(), name.clone());
    let written = tokio::task::spawn_blocking(move || file.set(&cluster, &entry, &addresses)).await;
    let Err(error) = written.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked))) else {
        return ApiEndpoint { url: format!("https://{name}:{PORT}"), master: None };
    };
    let master = ready_master(&search).await;
    let used = match &master {
        Some(context) => format!("{context}, which answers now"),
        None => "the first master; no master answers now".to_owned(),
    };
    let remedy = output.remedy_text(&EngineRemedy::ChooseReadyMaster(spec.name.clone()));
    output.info(&format!("note: /etc/hosts cannot be written ({error}): kubectl uses {used}; {remedy}"));
    ApiEndpoint { url: api(spec), master }
}

/// The context of a ready master: the chosen master, else the first that answers.
async fn ready_master(search: &EndpointSearch<'_>) -> Option<String> {
    let masters = &search.spec.masters;
    let agent = agent(search.authority)?;
    let context = |host: &HostSpec| context(search.spec, host);
    let wanted = masters.iter().position(|host| search.chosen == Some(context(host).as_str())).unwrap_or(0);
    let mut answers = JoinSet::new();
    for (index, host) in masters.iter().enumerate() {
        let (agent, url) = (agent.clone(), format!("https://{}:{}/readyz", host.address, search.port));
        answers.spawn_blocking(move || (index, is_ready(&agent, &url)));
    }
    let (mut first, mut until) = (None, Instant::now() + REQUEST_TIMEOUT + PREFERRED_WAIT);
    loop {
        tokio::select! {
            answer = answers.join_next() => match answer {
                None => break,
                Some(Ok((index, true))) if index == wanted => {
                    first = Some(index);
                    break;
                }
                Some(Ok((index, true))) if first.is_none() => {
                    first = Some(index);
                    until = until.min(Instant::now() + PREFERRED_WAIT);
                }
                Some(_) => {}
            },
            () = sleep_until(until) => break,
        }
    }
    first.map(|index| context(&masters[index]))
}

fn agent(authority: &str) -> Option<ureq::Agent> {
    let authorities = kubeon_https::authorities(authority.as_bytes()).ok()?;
    let config = ureq::Agent::config_builder()
        .tls_config(kubeon_https::tls(authorities).build())
        .proxy(None)
        .https_only(true)
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(REQUEST_TIMEOUT))
        .build();
    Some(config.new_agent())
}

fn is_ready(agent: &ureq::Agent, url: &str) -> bool {
    agent.get(url).call().is_ok_and(|answer| answer.status() == 200)
}

/// The name of a master's context.
pub fn context(spec: &DesiredCluster, host: &HostSpec) -> String {
    let name = host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string);
    format!("{}-{name}", spec.name)
}

/// The URL of the API: the load balancer, or the first master.
pub fn api(spec: &DesiredCluster) -> String {
    match (&spec.settings.load_balancer, spec.masters.first()) {
        (LoadBalancer::External { address, port }, _) => format!("https://{address}:{port}"),
        (LoadBalancer::Haproxy | LoadBalancer::Updater, Some(master)) => {
            format!("https://{}:{PORT}", master.address)
        }
        (LoadBalancer::Haproxy | LoadBalancer::Updater, None) => String::new(),
    }
}

/// The context to choose when no single master has to be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextChoice {
    /// The current context.
    Current,
    /// The context of the cluster.
    Cluster,
}

/// Searches the endpoint again. Returns the new text of the kubeconfig if the endpoint differs. Updates the
/// hosts file too.
///
/// # Errors
/// When the text is not a kubeconfig of the cluster.
pub async fn renewed(
    text: &str,
    spec: &DesiredCluster,
    choice: ContextChoice,
    output: &dyn EngineOutput,
) -> Result<Option<String>, EngineError> {
    let old = Kubeconfig::parse(text)?;
    let name = spec.name.as_str();
    let authority = old.authority(name);
    let authority = authority.ok_or_else(|| {
        EngineError::failed(format!("the kubeconfig has no certificate authority for {name}"))
    })?;
    let endpoint = find(EndpointSearch::new(spec, &authority, old.current()), output).await;
    redirected(&old, name, &endpoint, choice)
}

fn redirected(
    old: &Kubeconfig,
    cluster: &str,
    endpoint: &ApiEndpoint,
    choice: ContextChoice,
) -> Result<Option<String>, EngineError> {
    let mut new = old.clone();
    new.set_server(cluster, &endpoint.url);
    match (&endpoint.master, choice, old.current()) {
        (Some(master), ..) => new.choose(master),
        (None, ContextChoice::Current, Some(_)) => {}
        (None, ..) => new.choose(cluster),
    }
    if new == *old { Ok(None) } else { new.text().map(Some) }
}

#[cfg(test)]
mod tests;
