//! Actions of Tencent Cloud. Errors come with the status 200.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::tables::{ApiFailure, CloudRoute, Tables, json as json_answer};

pub(super) fn act(tables: &mut Tables, action: &str, body: &Bytes) -> Result<Value, ApiFailure> {
    let malformed = |error: serde_json::Error| ("InvalidParameter", error.to_string());
    let parameters: Value = serde_json::from_slice(body).map_err(malformed)?;
    let table = parameters["RouteTableId"].as_str().or_else(|| parameters["RouteTableIds"][0].as_str());
    let table = table.unwrap_or_default().to_owned();
    if !tables.tables.contains_key(&table) {
        return Err(("ResourceNotFound", format!("no route table {table}")));
    }
    let routes = parameters["Routes"].as_array().cloned().unwrap_or_default();
    match action {
        "DescribeRouteTables" => Ok(described(tables, &table)),
        "CreateRoutes" => {
            routes.iter().try_for_each(|route| create(tables, &table, route)).map(|()| json!({}))
        }
        "DeleteRoutes" => {
            let ids = routes.iter().filter_map(|route| route["RouteId"].as_u64());
            let found = tables.tables.entry(table).or_default();
            ids.for_each(|id| drop(found.remove(&id)));
            Ok(json!({}))
        }
        other => Err(("InvalidAction", other.to_owned())),
    }
}

fn create(tables: &mut Tables, table: &str, route: &Value) -> Result<(), ApiFailure> {
    let text = |name: &str| route[name].as_str().unwrap_or_default().to_owned();
    let new = CloudRoute {
        destination: text("DestinationCidrBlock"),
        next_hop: text("GatewayId"),
        description: text("RouteDescription"),
    };
    if text("GatewayType") != "NORMAL_CVM" {
        return Err(("InvalidParameterValue", text("GatewayType")));
    }
    if tables.tables[table].values().any(|found| found.destination == new.destination) {
        return Err(("InvalidParameterValue.Duplicate", new.destination));
    }
    tables.insert(table, new);
    Ok(())
}

fn described(tables: &Tables, table: &str) -> Value {
    let routes = tables.tables[table].iter().map(|(id, route)| {
        json!({
            "RouteId": id, "DestinationCidrBlock": route.destination, "GatewayType": "NORMAL_CVM",
            "GatewayId": route.next_hop, "RouteDescription": route.description, "RouteType": "USER",
        })
    });
    json!({"TotalCount": 1, "RouteTableSet": [{"RouteTableId": table, "RouteSet": routes.collect::<Vec<_>>()}]})
}

pub(super) fn answer(result: Result<Value, ApiFailure>) -> Response {
    let mut response = match result {
        Ok(response) => response,
        Err((code, message)) => json!({"Error": {"Code": code, "Message": message}}),
    };
    response["RequestId"] = json!("1");
    json_answer(StatusCode::OK, &json!({ "Response": response }))
}
