//! The webhook answers API servers only. That it answers them, every other test shows.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kubeon_install::names;

use crate::certificate::{post, stored};
use crate::front_proxy::{ClientIdentity, FrontProxy};
use crate::world::world;

#[tokio::test]
async fn clients_that_are_no_api_server_get_no_review() {
    let world = world().await;
    let secrets: Api<Secret> = Api::namespaced(world.admin().await, names::NAMESPACE);
    let authorities = stored(&secrets.get(names::WEBHOOK_SECRET).await.unwrap()).authorities;
    let (address, api_servers) = (world.replicas[0], &world.front_proxy);
    let authorities = authorities.as_str();
    let answer = |client: Option<ClientIdentity>| async move {
        post(address, authorities, client.as_ref(), "{}").await
    };

    let without = answer(None).await.unwrap().1;
    assert!(without.starts_with("HTTP/1.1 403 ") && without.contains("has no certificate"), "{without}");
    let foreign_name = answer(Some(api_servers.client("alice"))).await.unwrap().1;
    assert!(foreign_name.starts_with("HTTP/1.1 403 "), "{foreign_name}");
    assert!(foreign_name.contains("requestheader-allowed-names"), "{foreign_name}");
    let foreign_authority = answer(Some(FrontProxy::new().api_server())).await.unwrap_err().to_string();
    assert!(
        foreign_authority.contains("UnknownCA") || foreign_authority.contains("alert"),
        "{foreign_authority}"
    );
    let api_server = answer(Some(api_servers.api_server())).await.unwrap().1;
    assert!(api_server.starts_with("HTTP/1.1 400 "), "{api_server}");
}
