//! The VPC API (2016-04-28) and the ECS API (2014-05-26) of Alibaba Cloud, with signatures ACS3-HMAC-SHA256.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kubeon_api::{CloudProvider, CloudRegion, CloudRoutes, HostAddress, RouteTableId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::account::CloudAccount;
use crate::api_client::ApiClient;
use crate::error::CloudError;
use crate::plan::{FoundRoute, WantedRoute};
use crate::route_api::RouteApi;
use crate::signature::{hmac, sha256};

const VPC: &str = "2016-04-28";
const ECS: &str = "2014-05-26";
/// The most routes or instances in one request.
const BATCH: usize = 50;
/// The most pages of a list that are read.
const PAGES: usize = 100;
const PAGE_SIZE: &str = "100";
/// How codes begin that mean: try again.
const PASSING: &[&str] = &[
    "IncorrectRouteTableStatus",
    "IncorrectStatus",
    "InternalError",
    "LastTokenProcessing",
    "OperationConflict",
    "ServiceUnavailable",
    "SystemBusy",
    "TaskConflict",
    "Throttling",
];
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

type Parameters = BTreeMap<String, String>;

pub(crate) struct Aliyun {
    vpc: ApiClient,
    ecs: ApiClient,
    account: CloudAccount,
    region: CloudRegion,
}

/// What is signed besides the parameters.
struct Request<'a> {
    host: &'a str,
    action: &'a str,
    version: &'a str,
    date: &'a str,
    nonce: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ApiError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RouteList {
    #[serde(default)]
    next_token: Option<String>,
    route_entrys: RouteEntries,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RouteEntries {
    route_entry: Vec<RouteEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RouteEntry {
    route_entry_id: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    destination_cidr_block: Option<String>,
    #[serde(default)]
    next_hops: NextHops,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NextHops {
    #[serde(default)]
    next_hop: Vec<NextHop>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NextHop {
    #[serde(default)]
    next_hop_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InstanceList {
    instances: Instances,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Instances {
    instance: Vec<Instance>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Instance {
    instance_id: String,
    vpc_attributes: VpcAttributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VpcAttributes {
    private_ip_address: IpAddresses,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct IpAddresses {
    ip_address: Vec<String>,
}

/// The answer to a change of several routes.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Changed {
    #[serde(default)]
    failed_route_entries: Vec<FailedRoute>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FailedRoute {
    #[serde(default)]
    dst_cidr_block: String,
    #[serde(default)]
    failed_code: String,
    #[serde(default)]
    failed_message: String,
}

impl Aliyun {
    pub(crate) fn new(settings: &CloudRoutes, account: &CloudAccount) -> Result<Self, CloudError> {
        let client = |service: &str| {
            let host = format!("{service}.{}.aliyuncs.com", settings.region);
            ApiClient::new(CloudProvider::Aliyun, settings.api.as_ref(), &host)
        };
        let (vpc, ecs) = (client("vpc")?, client("ecs")?);
        Ok(Self { vpc, ecs, account: account.clone(), region: settings.region.clone() })
    }

    fn parameters<const N: usize>(&self, others: [(&str, &str); N]) -> Parameters {
        let region = [("RegionId", self.region.as_str())];
        let all = region.into_iter().chain(others);
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn ask<T: DeserializeOwned>(
        &self,
        (client, version): (&ApiClient, &str),
        action: &'static str,
        parameters: &Parameters,
    ) -> Result<T, CloudError> {
        let (date, nonce) =
            (Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), Uuid::new_v4().to_string());
        let request = Request { host: &client.host, action, version, date: &date, nonce: &nonce };
        let query = query(parameters);
        let authorization = request.authorization(&self.account, &query);
        let headers = [
            ("authorization", authorization.as_str()),
            ("x-acs-action", action),
            ("x-acs-content-sha256", &sha256(b"")),
            ("x-acs-date", &date),
            ("x-acs-signature-nonce", &nonce),
            ("x-acs-version", version),
        ];
        let answer = client.post(action, &format!("?{query}"), &headers, "")?;
        if answer.status.is_success() {
            return client.parsed(action, &answer);
        }
        let ApiError { code, message } = client.parsed(action, &answer)?;
        if answer.status.is_server_error() {
            return Err(client.unavailable(action, format!("{code}: {message}")));
        }
        Err(client.refused(action, (code, message), PASSING))
    }

    fn instances(&self, addresses: &[HostAddress]) -> Result<Vec<Instance>, CloudError> {
        let list = serde_json::json!(addresses).to_string();
        let parameters = self.parameters([
            ("InstanceNetworkType", "vpc"),
            ("PageSize", PAGE_SIZE),
            ("PrivateIpAddresses", &list),
        ]);
        let found: InstanceList = self.ask((&self.ecs, ECS), "DescribeInstances", &parameters)?;
        Ok(found.instances.instance)
    }

    /// Sends the request. A route that failed is the error of the request.
    fn change(&self, action: &'static str, parameters: &Parameters) -> Result<(), CloudError> {
        let changed: Changed = self.ask((&self.vpc, VPC), action, parameters)?;
        match changed.failed_route_entries.into_iter().next() {
            None => Ok(()),
            Some(route) => {
                let message = format!("{}: {}", route.dst_cidr_block, route.failed_message);
                Err(self.vpc.refused(action, (route.failed_code, message), PASSING))
            }
        }
    }
}

impl RouteApi for Aliyun {
    fn next_hops(&self, addresses: &[HostAddress]) -> Result<BTreeMap<HostAddress, String>, CloudError> {
        let mut hops = BTreeMap::new();
        for batch in addresses.chunks(BATCH) {
            let instances = self.instances(batch)?;
            for address in batch {
                let text = address.to_string();
                let has = |instance: &&Instance| {
                    instance.vpc_attributes.private_ip_address.ip_address.contains(&text)
                };
                let instance = instances.iter().find(has).ok_or_else(|| CloudError::NoInstance {
                    region: self.region.to_string(),
                    address: *address,
                })?;
                hops.insert(*address, instance.instance_id.clone());
            }
        }
        Ok(hops)
    }

    fn routes(&self, table: &RouteTableId) -> Result<Vec<FoundRoute>, CloudError> {
        const ACTION: &str = "DescribeRouteEntryList";
        let mut routes = Vec::new();
        let mut parameters = self.parameters([
            ("MaxResult", PAGE_SIZE),
            ("RouteEntryType", "Custom"),
            ("RouteTableId", table.as_str()),
        ]);
        for _ in 0..PAGES {
            let list: RouteList = self.ask((&self.vpc, VPC), ACTION, &parameters)?;
            routes.extend(list.route_entrys.route_entry.into_iter().map(found));
            match list.next_token.filter(|token| !token.is_empty()) {
                Some(token) => parameters.insert("NextToken".to_owned(), token),
                None => return Ok(routes),
            };
        }
        Err(self.vpc.unavailable(ACTION, format!("more than {PAGES} pages of routes")))
    }

    fn add(&self, table: &RouteTableId, routes: &[WantedRoute]) -> Result<(), CloudError> {
        for batch in routes.chunks(BATCH) {
            let mut parameters = self.parameters([]);
            for (number, route) in (1..).zip(batch) {
                let fields = [
                    ("RouteTableId", table.as_str()),
                    ("DstCidrBlock", &route.destination),
                    ("NextHop", &route.next_hop),
                    ("NextHopType", "Instance"),
                    ("IpVersion", "4"),
                    ("Name", &route.name),
                    ("Description", &route.description),
                ];
                insert(&mut parameters, number, &fields);
            }
            self.change("CreateRouteEntries", &parameters)?;
        }
        Ok(())
    }

    fn remove(&self, table: &RouteTableId, routes: &[FoundRoute]) -> Result<(), CloudError> {
        for batch in routes.chunks(BATCH) {
            let mut parameters = self.parameters([]);
            for (number, route) in (1..).zip(batch) {
                insert(
                    &mut parameters,
                    number,
                    &[("RouteTableId", table.as_str()), ("RouteEntryId", &route.id)],
                );
            }
            self.change("DeleteRouteEntries", &parameters)?;
        }
        Ok(())
    }
}

fn found(entry: RouteEntry) -> FoundRoute {
    let next_hop = entry.next_hops.next_hop.into_iter().find_map(|hop| hop.next_hop_id);
    FoundRoute {
        id: entry.route_entry_id,
        description: entry.description.unwrap_or_default(),
        destination: entry.destination_cidr_block.unwrap_or_default(),
        next_hop: next_hop.unwrap_or_default(),
    }
}

fn insert(parameters: &mut Parameters, number: usize, fields: &[(&str, &str)]) {
    for (name, value) in fields {
        parameters.insert(format!("RouteEntries.{number}.{name}"), (*value).to_owned());
    }
}

/// The parameters in the order of their names, percent-encoded.
fn query(parameters: &Parameters) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, RESERVED).to_string();
    let pairs = parameters.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

impl Request<'_> {
    /// The header `Authorization` of a request to `/` without a body.
    fn authorization(&self, account: &CloudAccount, query: &str) -> String {
        const SIGNED: &str =
            "host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version";
        let Self { host, action, version, date, nonce } = self;
        let body = sha256(b"");
        let request = format!(
            "POST\n/\n{query}\nhost:{host}\nx-acs-action:{action}\nx-acs-content-sha256:{body}\nx-acs-date:{date}\n\
             x-acs-signature-nonce:{nonce}\nx-acs-version:{version}\n\n{SIGNED}\n{body}"
        );
        let text = format!("ACS3-HMAC-SHA256\n{}", sha256(request.as_bytes()));
        let signature = hex::encode(hmac(account.secret_key.expose_secret().as_bytes(), &text));
        format!(
            "ACS3-HMAC-SHA256 Credential={},SignedHeaders={SIGNED},Signature={signature}",
            account.secret_id
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the documentation of the provider.
    #[test]
    fn signs_as_the_provider_documents() {
        let account = CloudAccount {
            secret_id: "YourAccessKeyId".to_owned(),
            secret_key: "YourAccessKeySecret".into(),
        };
        let request = Request {
            host: "ecs.cn-shanghai.aliyuncs.com",
            action: "RunInstances",
            version: ECS,
            date: "2023-10-26T10:22:32Z",
            nonce: "3156853299f313e23d1673dc12e1703d",
        };
        let parameters = Parameters::from([
            ("RegionId".to_owned(), "cn-shanghai".to_owned()),
            ("ImageId".to_owned(), "win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd".to_owned()),
        ]);
        let authorization = request.authorization(&account, &query(&parameters));
        assert!(
            authorization
                .ends_with("Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0"),
            "{authorization}"
        );
    }

    #[test]
    fn reserved_characters_of_parameters_are_encoded() {
        let parameters = Parameters::from([("A.1".to_owned(), "a b,[\"*/~".to_owned())]);
        assert_eq!(query(&parameters), "A.1=a%20b%2C%5B%22%2A%2F~");
    }
}
