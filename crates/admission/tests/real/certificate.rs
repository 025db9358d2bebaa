//! The webhook's certificate: one for both replicas, trusted by the API server, renewed without a restart.

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kubeon_admission::certificate::WebhookCertificates;
use kubeon_install::names;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use crate::front_proxy::ClientIdentity;
use crate::world::*;

/// The certificate and the answer for a client that trusts only these authorities.
pub(crate) async fn post(
    address: std::net::SocketAddr,
    authorities: &str,
    client: Option<&ClientIdentity>,
    body: &str,
) -> std::io::Result<(CertificateDer<'static>, String)> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    let config = match client {
        None => config.with_no_client_auth(),
        Some(client) => {
            let certificate = CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("kubeon-webhook.kubeon-system.svc").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
    let head = format!(
        "POST /validate HTTP/1.1\r\nhost: w\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok((shown, answer))
}

pub(crate) fn stored(secret: &Secret) -> WebhookCertificates {
    let text = |key: &str| String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap();
    WebhookCertificates {
        authorities: text("ca.crt"),
        authority_key: text("ca.key"),
        leaf: text("tls.crt"),
        leaf_key: text("tls.key"),
    }
}

#[tokio::test]
async fn both_replicas_show_one_certificate_and_its_successor() {
    // This test has its own API server, because no other object can be changed while the trust is lost.
    let world = raise().await;
    let admin = world.admin().await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), names::NAMESPACE);
    let before = stored(&secrets.get(names::WEBHOOK_SECRET).await.unwrap());
    // Contract A, case 43: a standby also answers 400 to a body that is not a review.
    let client = world.front_proxy.api_server();
    for address in world.replicas {
        let (shown, answer) = post(address, &before.authorities, Some(&client), "{}").await.unwrap();
        assert_eq!(shown, CertificateDer::from_pem_slice(before.leaf.as_bytes()).unwrap());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
    let trusted = || async {
        let hook = hooks.get(names::WEBHOOK_CONFIGURATION).await.unwrap().webhooks.unwrap().remove(0);
        hook.client_config.ca_bundle.unwrap_or_default()
    };
    assert_eq!(trusted().await, ByteString(before.authorities.clone().into_bytes()));
    // A leaf of 70 days is past two thirds of its life: the first replica that sees it renews it, both serve the new one.
    let past = OffsetDateTime::now_utc() - Duration::days(70);
    let aged =
        before.renewed(&["kubeon-webhook.kubeon-system.svc".into(), "127.0.0.1".into(), "aged".into()], past);
    let aged = aged.unwrap().unwrap();
    let data = json!({"stringData": {"tls.crt": aged.leaf, "tls.key": aged.leaf_key}});
    secrets.patch(names::WEBHOOK_SECRET, &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
    let renewed = eventually("the leaf is renewed", || async {
        let now = stored(&secrets.get(names::WEBHOOK_SECRET).await.unwrap());
        (now.leaf != aged.leaf && now.leaf != before.leaf).then_some(now)
    });
    let renewed = renewed.await;
    assert_eq!(renewed.authorities, before.authorities);
    let leaf = CertificateDer::from_pem_slice(renewed.leaf.as_bytes()).unwrap();
    for address in world.replicas {
        let shows = || async {
            let (shown, _) = post(address, &renewed.authorities, Some(&client), "{}").await.unwrap();
            (shown == leaf).then_some(())
        };
        eventually("the new leaf is shown", shows).await;
    }
    // The manifest is applied again: the trust is restored.
    let lost = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
    let lost: Patch<()> = Patch::Json(serde_json::from_value(lost).unwrap());
    hooks.patch(names::WEBHOOK_CONFIGURATION, &PatchParams::default(), &lost).await.unwrap();
    eventually("trust is back", || async {
        (trusted().await.0 == renewed.authorities.as_bytes()).then_some(())
    })
    .await;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
    let mutating = mutating.get(names::WEBHOOK_CONFIGURATION).await.unwrap().webhooks.unwrap().remove(0);
    assert_eq!(mutating.client_config.ca_bundle.unwrap_or_default().0, renewed.authorities.as_bytes());
}
