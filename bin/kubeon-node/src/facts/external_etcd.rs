//! The members of etcd on hosts of their own, as a master reaches them: with the addresses and the client certificate of its
//! API server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddrV4, TcpStream};
use std::thread;
use std::time::Duration;

use kubeon_wire::EtcdFact;
use serde_json::Value;

use super::etcd_health::{ANSWER_TIMEOUT, is_healthy, member};
use crate::durable::read_text;
use crate::https::{Https, Method};
use crate::paths;
use crate::root::Root;
use crate::units;

const UNIT: &str = "kube-apiserver.service";
/// The time limit for a connection: a host that runs accepts or refuses it at once, also while its programs are slow.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// What the members report that the API server of this host uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ExternalMembers {
    /// The health of the members with a vote. It is unknown of a member that the API server does not use: one that joins or leaves.
    pub(super) health: EtcdFact,
    /// The names of members without a vote.
    pub(super) learners: BTreeSet<String>,
}

/// The members that the API server of this host uses; `None` if they are not on hosts of their own.
pub(super) fn members(root: &Root) -> Option<ExternalMembers> {
    let unit = read_text(&units::file(root, UNIT)).ok().flatten()?;
    let servers = servers(&unit);
    if servers.is_empty() || servers.iter().any(|server| server.ip().is_loopback()) {
        return None;
    }
    Some(health_of(root, &servers))
}

/// The addresses of etcd in the unit of an API server.
fn servers(unit: &str) -> Vec<SocketAddrV4> {
    let urls = unit.split_whitespace().find_map(|word| word.strip_prefix("--etcd-servers="));
    let urls = urls.into_iter().flat_map(|urls| urls.split(','));
    urls.filter_map(|url| url.strip_prefix("https://")?.parse().ok()).collect()
}

fn health_of(root: &Root, servers: &[SocketAddrV4]) -> ExternalMembers {
    let identity = (root.at(paths::API_ETCD_CERTIFICATE), root.at(paths::API_ETCD_KEY));
    let Ok(https) = Https::open(&root.at(paths::ETCD_CA), Some((&identity.0, &identity.1))) else {
        return ExternalMembers::default();
    };
    let https = &https;
    let answers: Vec<MemberAnswer> = thread::scope(|scope| {
        let asked: Vec<_> = servers.iter().map(|server| scope.spawn(move || ask(https, *server))).collect();
        asked.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let listed = listed(answers.iter().find_map(|answer| answer.list.as_ref()));
    let name = |server: &SocketAddrV4| {
        let at = url(*server);
        let found = listed.iter().find(|member| member.url.as_ref() == Some(&at));
        found.map_or_else(|| server.ip().to_string(), |member| member.name.clone())
    };
    let used = servers.iter().zip(&answers).map(|(server, answer)| (name(server), answer.serves));
    let (learners, voters): (Vec<&ListedMember>, Vec<&ListedMember>) =
        listed.iter().partition(|member| member.is_learner);
    let mut health: BTreeMap<String, Option<bool>> =
        voters.into_iter().map(|voter| (voter.name.clone(), None)).collect();
    health.extend(used);
    let learners = learners.into_iter().map(|learner| learner.name.clone()).collect();
    ExternalMembers { health: EtcdFact::Members(health), learners }
}

/// What a member reports.
#[derive(Default)]
struct MemberAnswer {
    /// Whether it serves; `None` if its host runs and it did not answer in time.
    serves: Option<bool>,
    /// The members that it lists.
    list: Option<Value>,
}

fn ask(https: &Https, server: SocketAddrV4) -> MemberAnswer {
    let url = url(server);
    let serves = is_healthy(https, &url);
    if serves.is_none() {
        let connected = TcpStream::connect_timeout(&server.into(), CONNECT_TIMEOUT);
        return MemberAnswer { serves: connected.is_err().then_some(false), list: None };
    }
    let list = format!("{url}/v3/cluster/member/list");
    let answer = https.send(Method::Post, &list, "application/json", b"{}", ANSWER_TIMEOUT);
    MemberAnswer { serves, list: answer.ok().and_then(|answer| serde_json::from_str(&answer.body).ok()) }
}

fn url(server: SocketAddrV4) -> String {
    format!("https://{server}")
}

/// A member in the list of etcd.
struct ListedMember {
    name: String,
    /// The URL for clients; a member that never started has none.
    url: Option<String>,
    is_learner: bool,
}

fn listed(list: Option<&Value>) -> Vec<ListedMember> {
    let members = list.and_then(|list| list["members"].as_array());
    let read = |listed: &Value| {
        let (name, url) = member(listed);
        let url = url.map(|url| url.trim_end_matches('/').to_owned());
        ListedMember { name, url, is_learner: listed["isLearner"] == true }
    };
    members.into_iter().flatten().map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::testing::Bench;
    use crate::testing_api::{self, Reply};

    /// The report of a member that gives this answer to health checks and lists itself as h3, a voter h5 and a learner h6, and of
    /// one that does not run.
    fn health(answer: impl Fn() -> Reply + Send + Sync + 'static) -> ExternalMembers {
        let mut bench = Bench::new();
        let own = Arc::new(Mutex::new(String::new()));
        let listed = Arc::clone(&own);
        testing_api::serve(&mut bench, move |_, path, _| match path {
            "/v3/cluster/member/list" => {
                let url = listed.lock().clone();
                let members = serde_json::json!([
                    {"name": "h3", "clientURLs": [url]},
                    {"name": "h5", "clientURLs": ["https://127.0.0.1:2"]},
                    {"name": "h6", "clientURLs": ["https://127.0.0.1:3"], "isLearner": true},
                ]);
                Reply::Json(200, serde_json::json!({"members": members}).to_string())
            }
            _ => answer(),
        });
        own.lock().clone_from(&bench.host.api);
        for (from, to) in [
            (paths::API_CA, paths::ETCD_CA),
            (paths::ADMIN_CERTIFICATE, paths::API_ETCD_CERTIFICATE),
            (paths::ADMIN_KEY, paths::API_ETCD_KEY),
        ] {
            bench.write(to, &bench.read(from));
        }
        let server = bench.host.api.strip_prefix("https://").unwrap().parse().unwrap();
        health_of(&bench.host.root, &[server, "127.0.0.1:1".parse().unwrap()])
    }

    fn members(h3: Option<bool>) -> ExternalMembers {
        let known = [("h3", h3), ("127.0.0.1", Some(false)), ("h5", None)];
        let health = EtcdFact::Members(known.map(|(name, serves)| (name.to_owned(), serves)).into());
        ExternalMembers { health, learners: ["h6".to_owned()].into() }
    }

    #[test]
    fn a_member_that_does_not_run_is_down_and_those_that_the_api_server_does_not_use_are_listed() {
        let ready = health(|| Reply::Json(200, "{}".to_owned()));
        assert_eq!(ready, members(Some(true)));
        let defect = health(|| Reply::Json(503, "{}".to_owned()));
        assert_eq!(defect, members(Some(false)));
    }

    #[test]
    fn without_the_certificate_of_the_api_server_nothing_is_known() {
        let bench = Bench::new();
        let unknown = ExternalMembers::default();
        assert_eq!(health_of(&bench.host.root, &["127.0.0.1:1".parse().unwrap()]), unknown);
    }

    #[test]
    fn only_members_on_other_hosts_are_asked() {
        let bench = Bench::new();
        let root = &bench.host.root;
        assert_eq!(super::members(root), None, "no API server");
        let unit =
            |urls: &str| format!("ExecStart=/kube-apiserver \\\n  --etcd-servers={urls} \\\n  --v=2\n");
        let place = format!("{}/{UNIT}", paths::UNIT_FILES);
        bench.write(&place, &unit("https://127.0.0.1:2379"));
        assert_eq!(super::members(root), None, "a stacked member");
        let urls = "https://10.0.0.3:2379,https://10.0.0.4:2379";
        bench.write(&place, &unit(urls));
        assert_eq!(super::members(root), Some(ExternalMembers::default()), "no certificate");
        let addresses: [SocketAddrV4; 2] =
            ["10.0.0.3:2379", "10.0.0.4:2379"].map(|server| server.parse().unwrap());
        assert_eq!(servers(&unit(urls)), addresses);
    }
}
