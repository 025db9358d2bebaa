//! The typed client against the gateway.

use std::time::Duration;

use kubeon_rest_client::{RestClient, RestError, RestOptions};
use serde_json::json;

use crate::support::{EDIT, RestServer, eventually, rest};

fn client(rest: &RestServer, token: String) -> RestClient {
    let authorities = Some(rest.authority().as_bytes().to_vec());
    RestClient::new(RestOptions { url: rest.url(""), token, authorities }).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_waits_for_a_change_of_a_cluster() {
    let rest = rest().await;
    let token = rest.account("team-a", "waiter", EDIT).await;
    rest.cluster_in("team-a", "waited-for", "Running").await;
    let path = "/api/v2/namespaces/team-a/clusters/waited-for";
    eventually(rest, &token, path, |answer| answer.1["phase"] == "Running").await;
    let waiting = client(rest, token.clone());
    let limit = ("the failure", Duration::from_secs(60));
    let waits = tokio::task::spawn_blocking(move || {
        waiting.wait_for_cluster(("team-a", "waited-for"), limit, |cluster| {
            let failed = cluster.phase.as_deref() == Some("Failed");
            failed.then(|| (cluster.reason.clone(), cluster.generation, cluster.observed_generation))
        })
    });
    let failed = json!({"phase": "Failed", "reason": "broken", "observedGeneration": 1});
    rest.set_status("team-a", "waited-for", failed).await;
    assert_eq!(waits.await.unwrap().unwrap(), (Some("broken".to_owned()), 1, Some(1)));

    let in_vain = client(rest, token);
    let limit = ("the impossible", Duration::from_secs(1));
    let waits = tokio::task::spawn_blocking(move || {
        in_vain.wait_for_cluster(("team-a", "waited-for"), limit, |_| None::<()>)
    });
    let late = waits.await.unwrap().unwrap_err();
    assert_eq!(late.to_string(), "the impossible did not happen within 1 s");
    let stranger = client(rest, rest.account("team-b", "stranger", EDIT).await);
    let refused = tokio::task::spawn_blocking(move || {
        stranger.wait_for_cluster(("team-a", "waited-for"), limit, |_| Some(()))
    });
    let refused = refused.await.unwrap().unwrap_err();
    assert!(matches!(refused, RestError::Refused { status: 403, .. }), "{refused}");
}
