//! Client of the members of etcd, with the certificate for health checks. It uses the JSON gateway of etcd.

use std::net::Ipv4Addr;
use std::time::Duration;

use kubeon_wire::StepFailure;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::https::{Https, Method, NoAnswer};
use crate::paths;
use crate::root::Root;

/// The time limit of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// What a member without a vote answers to requests for members (`ErrGRPCNotSupportedForLearner` of etcd 3.6).
const REFUSAL_OF_LEARNER: &str = "rpc not supported for learner";

/// A client of some members of one cluster.
pub struct Etcd {
    https: Https,
    /// The URLs of the members, in the order in which they are asked.
    endpoints: Vec<String>,
}

/// A member as etcd lists it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ListedMember {
    /// Its identity, a decimal number.
    #[serde(rename = "ID")]
    pub id: String,
    /// Its name; empty if it never started.
    #[serde(default)]
    pub name: String,
    /// The URLs at which other members reach it.
    #[serde(rename = "peerURLs", default)]
    pub peer_urls: Vec<String>,
    /// The URLs at which clients reach it; empty if it never started.
    #[serde(rename = "clientURLs", default)]
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    #[serde(rename = "isLearner", default)]
    pub is_learner: bool,
}

/// The members as one of them knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnView {
    /// The identity of the member that answered.
    pub own: String,
    /// All members.
    pub members: Vec<ListedMember>,
}

/// Why a call was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAccepted {
    /// No member answered. The text holds the last cause.
    NoAnswer(String),
    /// A member refused it. The text is its message.
    Refused(String),
}

impl std::fmt::Display for NotAccepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoAnswer(why) => write!(f, "no member of etcd answers: {why}"),
            Self::Refused(message) => write!(f, "etcd refuses: {message}"),
        }
    }
}

/// The URL at which other members reach the member of a host.
#[must_use]
pub fn peer_url(address: Ipv4Addr) -> String {
    format!("https://{address}:2380")
}

impl ListedMember {
    /// Whether other members reach it at this address.
    #[must_use]
    pub fn is_at(&self, address: Ipv4Addr) -> bool {
        self.peer_urls.contains(&peer_url(address))
    }
}

impl Etcd {
    /// A client of the members on these hosts.
    ///
    /// # Errors
    /// If the certificates of this host cannot be read.
    pub fn of_hosts(root: &Root, hosts: &[Ipv4Addr]) -> Result<Self, StepFailure> {
        Self::at(root, hosts.iter().map(|host| format!("https://{host}:2379")).collect())
    }

    /// A client of the members at these URLs.
    ///
    /// # Errors
    /// If the certificates of this host cannot be read.
    pub fn at(root: &Root, endpoints: Vec<String>) -> Result<Self, StepFailure> {
        let identity = (root.at(paths::ETCD_CERTIFICATE), root.at(paths::ETCD_KEY));
        let https = Https::open(&root.at(paths::ETCD_CA), Some((&identity.0, &identity.1)))?;
        Ok(Self { https, endpoints })
    }

    /// The members, as the leader knows them.
    ///
    /// # Errors
    /// If no member answers, or there is no leader.
    pub fn members(&self) -> Result<Vec<ListedMember>, NotAccepted> {
        let answer = self.call("/v3/cluster/member/list", &json!({"linearizable": true}))?;
        serde_json::from_value(answer["members"].clone())
            .map_err(|error| NotAccepted::Refused(format!("an unknown list of members: {error}")))
    }

    /// The members as the first endpoint knows them. It answers without a leader, too. `None` if it has no vote: such a member lists
    /// nothing.
    ///
    /// # Errors
    /// If it does not answer, or its answer is not understood.
    pub fn own_view(&self) -> Result<Option<OwnView>, NoAnswer> {
        let endpoint = self.endpoints.first().map(String::as_str).unwrap_or_default();
        let url = format!("{endpoint}/v3/cluster/member/list");
        let answer = self.https.send(Method::Post, &url, "application/json", b"{}", CALL_TIMEOUT)?;
        let Some(view) = own_view(&answer.body) else {
            let why = refusal(&answer.body);
            return if why == REFUSAL_OF_LEARNER { Ok(None) } else { Err(NoAnswer::Unknown(why)) };
        };
        Ok(Some(view))
    }

    /// Adds a member without a vote.
    ///
    /// # Errors
    /// If etcd does not accept it.
    pub fn add_learner(&self, address: Ipv4Addr) -> Result<(), NotAccepted> {
        let body = json!({"peerURLs": [peer_url(address)], "isLearner": true});
        self.call("/v3/cluster/member/add", &body).map(drop)
    }

    /// Gives a learner a vote.
    ///
    /// # Errors
    /// If etcd does not accept it, for instance while the learner lacks data.
    pub fn promote(&self, id: &str) -> Result<(), NotAccepted> {
        self.call("/v3/cluster/member/promote", &json!({"ID": id})).map(drop)
    }

    /// Changes the address at which other members reach a member.
    ///
    /// # Errors
    /// If etcd does not accept it, for instance because another member has the address.
    pub fn relocate(&self, id: &str, address: Ipv4Addr) -> Result<(), NotAccepted> {
        let body = json!({"ID": id, "peerURLs": [peer_url(address)]});
        self.call("/v3/cluster/member/update", &body).map(drop)
    }

    /// Removes a member.
    ///
    /// # Errors
    /// If etcd does not accept it, for instance because other members do not answer each other.
    pub fn remove(&self, id: &str) -> Result<(), NotAccepted> {
        self.call("/v3/cluster/member/remove", &json!({"ID": id})).map(drop)
    }

    /// The index up to which the first member that answers has applied changes.
    ///
    /// # Errors
    /// If no member answers.
    pub fn applied_index(&self) -> Result<u64, NotAccepted> {
        let status = self.call("/v3/maintenance/status", &json!({}))?;
        let index = status["raftAppliedIndex"].as_str().and_then(|index| index.parse().ok());
        index.ok_or_else(|| NotAccepted::Refused("a status without an index".to_owned()))
    }

    /// Whether a member answers a read that needs a quorum.
    #[must_use]
    pub fn is_healthy(&self, member: &ListedMember) -> bool {
        member.client_urls.iter().any(|url| self.serves(url) == Some(true))
    }

    /// Whether the member at this URL answers a read that needs a quorum; `None` if it does not answer in time.
    #[must_use]
    pub fn serves(&self, url: &str) -> Option<bool> {
        let url = format!("{}/health?serializable=false", url.trim_end_matches('/'));
        match self.https.get(&url, CALL_TIMEOUT) {
            Ok(answer) => Some(answer.status == 200),
            Err(NoAnswer::NoServer(_)) => Some(false),
            Err(NoAnswer::Unknown(_)) => None,
        }
    }

    /// Sends a call to the members in order, until one answers it. A refusal of one member may be its own (a learner
    /// serves no client), so the others are asked too.
    fn call(&self, path: &str, body: &Value) -> Result<Value, NotAccepted> {
        let mut last = NotAccepted::NoAnswer("no member is known".to_owned());
        for endpoint in &self.endpoints {
            let url = format!("{endpoint}{path}");
            let sent = body.to_string();
            match self.https.send(Method::Post, &url, "application/json", sent.as_bytes(), CALL_TIMEOUT) {
                Ok(answer) if answer.status == 200 => {
                    return serde_json::from_str(&answer.body).map_err(|error| {
                        NotAccepted::Refused(format!("an answer that is not JSON: {error}"))
                    });
                }
                Ok(answer) => last = NotAccepted::Refused(refusal(&answer.body)),
                Err(why) if matches!(last, NotAccepted::NoAnswer(_)) => {
                    last = NotAccepted::NoAnswer(format!("{endpoint}: {why}"));
                }
                Err(_) => {}
            }
        }
        Err(last)
    }
}

/// A list of members, which names the member that answered in its header.
fn own_view(body: &str) -> Option<OwnView> {
    let list: Value = serde_json::from_str(body).ok()?;
    // The gateway writes the names of the protocol, or those of JSON, as its version does.
    let header = &list["header"];
    let own = header["member_id"].as_str().or_else(|| header["memberId"].as_str())?.to_owned();
    Some(OwnView { own, members: serde_json::from_value(list["members"].clone()).ok()? })
}

/// The message in a refusal of etcd.
fn refusal(body: &str) -> String {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let text = json["message"].as_str().unwrap_or(body.lines().next().unwrap_or_default());
    text.trim_start_matches("etcdserver: ").to_owned()
}
