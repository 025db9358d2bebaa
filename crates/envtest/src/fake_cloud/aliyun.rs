//! Actions of Alibaba Cloud. Instance `i-ADDRESS` has every address; lists have two routes on a page.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::signed::SignedRequest;
use super::tables::{ApiFailure, CloudRoute, Tables, json as json_answer};

/// The most routes that a test changes in one request.
const MOST: usize = 50;
const PAGE: usize = 2;

pub(super) fn act(
    tables: &mut Tables,
    action: &str,
    request: &SignedRequest<'_>,
) -> Result<Value, ApiFailure> {
    if request.parameter("RegionId").is_none() {
        return Err(("MissingParameter", "RegionId".to_owned()));
    }
    match action {
        "DescribeInstances" => Ok(instances(&request.parameter("PrivateIpAddresses").unwrap_or_default())),
        "DescribeRouteEntryList" => list(tables, request),
        "CreateRouteEntries" => {
            Ok(changed(entries(request).filter_map(|number| create(tables, request, number))))
        }
        "DeleteRouteEntries" => {
            Ok(changed(entries(request).filter_map(|number| delete(tables, request, number))))
        }
        other => Err(("InvalidAction.NotFound", other.to_owned())),
    }
}

fn instances(addresses: &str) -> Value {
    let addresses: Vec<String> = serde_json::from_str(addresses).unwrap_or_default();
    let instance = |address: &String| json!({"InstanceId": format!("i-{address}"), "VpcAttributes": {"PrivateIpAddress": {"IpAddress": [address]}}});
    json!({"Instances": {"Instance": addresses.iter().map(instance).collect::<Vec<_>>()}})
}

fn list(tables: &Tables, request: &SignedRequest<'_>) -> Result<Value, ApiFailure> {
    let table = request.parameter("RouteTableId").unwrap_or_default();
    let Some(routes) = tables.tables.get(&table) else { return Err(("InvalidRouteTableId.NotFound", table)) };
    let begin: usize = request.parameter("NextToken").and_then(|token| token.parse().ok()).unwrap_or(0);
    let page = routes.iter().skip(begin).take(PAGE).map(|(id, route)| {
        json!({
            "RouteEntryId": format!("rte-{id}"), "DestinationCidrBlock": route.destination,
            "Description": route.description, "Type": "Custom",
            "NextHops": {"NextHop": [{"NextHopId": route.next_hop, "NextHopType": "Instance"}]},
        })
    });
    let page: Vec<_> = page.collect();
    let end = begin + page.len();
    let next = if end < routes.len() { end.to_string() } else { String::new() };
    Ok(json!({"RouteEntrys": {"RouteEntry": page}, "NextToken": next, "TotalCount": routes.len()}))
}

/// The numbers of the entries in a request.
fn entries<'a>(request: &'a SignedRequest<'_>) -> impl Iterator<Item = usize> + use<'a> {
    (1..=MOST).filter(|number| request.parameter(&format!("RouteEntries.{number}.RouteTableId")).is_some())
}

fn changed(failed: impl Iterator<Item = (&'static str, String)>) -> Value {
    let failed: Vec<_> = failed
        .map(|(code, destination)| json!({"FailedCode": code, "FailedMessage": "", "DstCidrBlock": destination}))
        .collect();
    json!({"FailedCount": failed.len(), "FailedRouteEntries": failed})
}

fn create(tables: &mut Tables, request: &SignedRequest<'_>, number: usize) -> Option<(&'static str, String)> {
    let text = |name: &str| request.parameter(&format!("RouteEntries.{number}.{name}")).unwrap_or_default();
    let (table, destination) = (text("RouteTableId"), text("DstCidrBlock"));
    let Some(routes) = tables.tables.get(&table) else {
        return Some(("InvalidRouteTableId.NotFound", destination));
    };
    if routes.values().any(|found| found.destination == destination) {
        return Some(("RouterEntryConflict.Duplicated", destination));
    }
    tables.insert(
        &table,
        CloudRoute { destination, next_hop: text("NextHop"), description: text("Description") },
    );
    None
}

fn delete(tables: &mut Tables, request: &SignedRequest<'_>, number: usize) -> Option<(&'static str, String)> {
    let text = |name: &str| request.parameter(&format!("RouteEntries.{number}.{name}")).unwrap_or_default();
    let id = text("RouteEntryId");
    let number = id.strip_prefix("rte-").and_then(|number| number.parse().ok());
    let routes = tables.tables.get_mut(&text("RouteTableId"));
    match routes.zip(number).and_then(|(routes, number): (_, u64)| routes.remove(&number)) {
        Some(_) => None,
        None => Some(("InvalidRouteEntry.NotFound", id)),
    }
}

pub(super) fn answer(result: Result<Value, ApiFailure>) -> Response {
    match result {
        Ok(response) => json_answer(StatusCode::OK, &response),
        Err((code, message)) => {
            json_answer(StatusCode::BAD_REQUEST, &json!({"Code": code, "Message": message, "RequestId": "1"}))
        }
    }
}
