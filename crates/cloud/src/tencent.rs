//! The VPC API of Tencent Cloud, version 2017-03-12, with signatures TC3-HMAC-SHA256.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kubeon_api::{CloudProvider, CloudRegion, CloudRoutes, HostAddress, RouteTableId};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::account::CloudAccount;
use crate::api_client::ApiClient;
use crate::error::CloudError;
use crate::plan::{FoundRoute, WantedRoute};
use crate::route_api::RouteApi;
use crate::signature::{hmac, sha256};

const SERVICE: &str = "vpc";
const VERSION: &str = "2017-03-12";
const CONTENT_TYPE: &str = "application/json; charset=utf-8";
/// The next hop is an ordinary instance, named by its address.
const GATEWAY_TYPE: &str = "NORMAL_CVM";
/// The most routes in one request.
const BATCH: usize = 50;
/// How codes begin that mean: try again.
const PASSING: &[&str] = &["InternalError", "InternalServerError", "RequestLimitExceeded", "ResourceInUse"];

pub(crate) struct Tencent {
    client: ApiClient,
    account: CloudAccount,
    region: CloudRegion,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Envelope {
    response: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ApiError {
    code: String,
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RouteTables {
    route_table_set: Vec<RouteTable>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RouteTable {
    #[serde(default)]
    route_set: Vec<Route>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Route {
    route_id: u64,
    #[serde(default)]
    destination_cidr_block: Option<String>,
    #[serde(default)]
    gateway_id: Option<String>,
    #[serde(default)]
    route_description: Option<String>,
}

impl Tencent {
    pub(crate) fn new(settings: &CloudRoutes, account: &CloudAccount) -> Result<Self, CloudError> {
        let client =
            ApiClient::new(CloudProvider::Tencent, settings.api.as_ref(), "vpc.tencentcloudapi.com")?;
        Ok(Self { client, account: account.clone(), region: settings.region.clone() })
    }

    fn ask<T: DeserializeOwned>(&self, action: &'static str, parameters: &Value) -> Result<T, CloudError> {
        let (body, seconds) = (parameters.to_string(), Timestamp::now().as_second());
        let authorization = authorization(&self.account, SERVICE, &self.client.host, &body, seconds);
        let headers = [
            ("content-type", CONTENT_TYPE),
            ("authorization", &authorization),
            ("x-tc-action", action),
            ("x-tc-version", VERSION),
            ("x-tc-timestamp", &seconds.to_string()),
            ("x-tc-region", self.region.as_str()),
        ];
        let answer = self.client.post(action, "", &headers, &body)?;
        let Envelope { mut response } = self.client.parsed(action, &answer)?;
        let unreadable = |error: serde_json::Error| self.client.unavailable(action, error.to_string());
        match response.get_mut("Error").map(Value::take) {
            Some(error) => {
                let ApiError { code, message } = serde_json::from_value(error).map_err(unreadable)?;
                Err(self.client.refused(action, (code, message), PASSING))
            }
            None => serde_json::from_value(response).map_err(unreadable),
        }
    }
}

impl RouteApi for Tencent {
    /// Addresses are next hops here.
    fn next_hops(&self, addresses: &[HostAddress]) -> Result<BTreeMap<HostAddress, String>, CloudError> {
        Ok(addresses.iter().map(|address| (*address, address.to_string())).collect())
    }

    fn routes(&self, table: &RouteTableId) -> Result<Vec<FoundRoute>, CloudError> {
        let found: RouteTables = self.ask("DescribeRouteTables", &json!({"RouteTableIds": [table]}))?;
        let routes = found.route_table_set.into_iter().flat_map(|table| table.route_set);
        let text = Option::unwrap_or_default;
        Ok(routes
            .map(|route| FoundRoute {
                id: route.route_id.to_string(),
                description: text(route.route_description),
                destination: text(route.destination_cidr_block),
                next_hop: text(route.gateway_id),
            })
            .collect())
    }

    fn add(&self, table: &RouteTableId, routes: &[WantedRoute]) -> Result<(), CloudError> {
        for batch in routes.chunks(BATCH) {
            let routes: Vec<_> = batch
                .iter()
                .map(|route| {
                    json!({
                        "DestinationCidrBlock": route.destination, "GatewayType": GATEWAY_TYPE,
                        "GatewayId": route.next_hop, "RouteDescription": route.description,
                    })
                })
                .collect();
            self.ask::<Value>("CreateRoutes", &json!({"RouteTableId": table, "Routes": routes}))?;
        }
        Ok(())
    }

    fn remove(&self, table: &RouteTableId, routes: &[FoundRoute]) -> Result<(), CloudError> {
        for batch in routes.chunks(BATCH) {
            let ids = batch.iter().filter_map(|route| route.id.parse::<u64>().ok());
            let routes: Vec<_> = ids.map(|id| json!({"RouteId": id})).collect();
            self.ask::<Value>("DeleteRoutes", &json!({"RouteTableId": table, "Routes": routes}))?;
        }
        Ok(())
    }
}

/// The header `Authorization` of a request to `/` with a JSON body.
fn authorization(account: &CloudAccount, service: &str, host: &str, body: &str, seconds: i64) -> String {
    let date = Timestamp::from_second(seconds).unwrap_or_default().strftime("%Y-%m-%d").to_string();
    let request = format!(
        "POST\n/\n\ncontent-type:{CONTENT_TYPE}\nhost:{host}\n\ncontent-type;host\n{}",
        sha256(body.as_bytes())
    );
    let scope = format!("{date}/{service}/tc3_request");
    let text = format!("TC3-HMAC-SHA256\n{seconds}\n{scope}\n{}", sha256(request.as_bytes()));
    let secret = format!("TC3{}", account.secret_key.expose_secret());
    let key =
        [service, "tc3_request"].iter().fold(hmac(secret.as_bytes(), &date), |key, word| hmac(&key, word));
    let signature = hex::encode(hmac(&key, &text));
    format!(
        "TC3-HMAC-SHA256 Credential={}/{scope}, SignedHeaders=content-type;host, Signature={signature}",
        account.secret_id
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the documentation of the provider.
    #[test]
    fn signs_as_the_provider_documents() {
        let account = CloudAccount {
            secret_id: "AKIDz8krbsJ5yKBZQpn74WFkmLPx3*******".to_owned(),
            secret_key: "Gu5t9xGARNpq86cd98joQYCN3*******".into(),
        };
        let body =
            r#"{"Limit": 1, "Filters": [{"Values": ["\u672a\u547d\u540d"], "Name": "instance-name"}]}"#;
        assert_eq!(
            authorization(&account, "cvm", "cvm.tencentcloudapi.com", body, 1_551_113_065),
            "TC3-HMAC-SHA256 Credential=AKIDz8krbsJ5yKBZQpn74WFkmLPx3*******/2019-02-25/cvm/tc3_request, \
             SignedHeaders=content-type;host, \
             Signature=2230eefd229f582d8b1b891af7107b91597240707d778ab3738f756258d7652c"
        );
    }
}
