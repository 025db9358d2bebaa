//! Manages the webhook's certificate: stores it in a Secret that all replicas share, renews it in time, and publishes its
//! authority to the API server.
//!
//! ```text
//!   Secret ──watch──► read, or make, or renew ──► shown by this replica          any replica may write; the API server's
//!                            │                                                   resourceVersion lets one of them win
//!   webhook configurations ◄─┴── caBundle, written by the leader, and again when it is removed
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use kubeon_install::names::{WEBHOOK_CONFIGURATION, WEBHOOK_SECRET, WEBHOOK_SERVICE};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::certificate::{CertificateError, WebhookCertificates};
use crate::watch_object::watch_object;

/// Where the certificate is stored.
pub struct CertificateStore {
    /// A client with the rights for this.
    pub client: Client,
    /// The operator's namespace: the Secret's and the Service's.
    pub namespace: String,
    /// Whether this replica is the leader; only the leader writes the webhook's configuration.
    pub leads: watch::Receiver<bool>,
    /// More names or addresses for the certificate of a webhook that is reached by URL.
    pub names: Vec<String>,
}

/// Why the certificate could not be managed; logged and retried.
#[derive(Debug, thiserror::Error)]
pub enum CertificateStoreError {
    /// The Secret could not be written.
    #[error("writing Secret {WEBHOOK_SECRET}")]
    Write(#[source] kube::Error),
    /// The configuration could not be written.
    #[error("writing the authority into {kind} {WEBHOOK_CONFIGURATION}")]
    Trust {
        /// The kind of the configuration.
        kind: String,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// The change of the configuration cannot be serialized as a JSON patch.
    #[error("serializing the patch of the webhook configuration {WEBHOOK_CONFIGURATION}")]
    Patch(#[source] serde_json::Error),
    /// A certificate could not be created or read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The certificate cannot be used.
    #[error("the certificate in Secret {WEBHOOK_SECRET} cannot be used: {0}")]
    Show(String),
}

impl CertificateStoreError {
    /// The error category for labels.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Write(_) => "certificate-store",
            Self::Trust { .. } | Self::Patch(_) => "certificate-trust",
            Self::Certificate(error) => error.category(),
            Self::Show(_) => "certificate-show",
        }
    }
}

/// Pause after an error.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// The longest wait for a renewal, so that changes of the clock are noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The last observed objects. The outer `None` of the Secret means: not observed yet.
#[derive(Default)]
struct Observed {
    secret: Option<Option<Secret>>,
    validating: Option<ValidatingWebhookConfiguration>,
    mutating: Option<MutatingWebhookConfiguration>,
}

/// The objects in the API server.
struct StoredObjects {
    secrets: Api<Secret>,
    validating: Api<ValidatingWebhookConfiguration>,
    mutating: Api<MutatingWebhookConfiguration>,
}

/// A configuration that names webhooks.
trait WebhookConfiguration:
    kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug
{
    /// How the API server reaches each webhook.
    fn clients(&self) -> Vec<&WebhookClientConfig>;
}

impl WebhookConfiguration for ValidatingWebhookConfiguration {
    fn clients(&self) -> Vec<&WebhookClientConfig> {
        self.webhooks.iter().flatten().map(|hook| &hook.client_config).collect()
    }
}

impl WebhookConfiguration for MutatingWebhookConfiguration {
    fn clients(&self) -> Vec<&WebhookClientConfig> {
        self.webhooks.iter().flatten().map(|hook| &hook.client_config).collect()
    }
}

/// Manages the certificate until dropped. `show` gets every new certificate.
pub(crate) async fn maintain(
    mut store: CertificateStore,
    show: impl Fn(&WebhookCertificates) -> Result<(), String>,
) {
    let names = names(&store);
    let stored = StoredObjects {
        secrets: Api::namespaced(store.client.clone(), &store.namespace),
        validating: Api::all(store.client.clone()),
        mutating: Api::all(store.client.clone()),
    };
    let mut secret_changes = std::pin::pin!(watch_object(stored.secrets.clone(), WEBHOOK_SECRET));
    let mut validating = std::pin::pin!(watch_object(stored.validating.clone(), WEBHOOK_CONFIGURATION));
    let mut mutating = std::pin::pin!(watch_object(stored.mutating.clone(), WEBHOOK_CONFIGURATION));
    let mut observed = Observed::default();
    loop {
        let leads = *store.leads.borrow_and_update();
        let wait = match reconcile(&stored, &names, &mut observed, leads, &show).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(category = error.category(), error = %with_source(&error), "the webhook's certificate cannot be managed; it is retried");
                RETRY_PAUSE
            }
        };
        tokio::select! {
            Some(secret) = secret_changes.next() => observed.secret = Some(secret),
            Some(configuration) = validating.next() => observed.validating = configuration,
            Some(configuration) = mutating.next() => observed.mutating = configuration,
            Ok(()) = store.leads.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Reconciles the certificate with the last seen objects. Returns the time until the next reconcile without a change.
async fn reconcile(
    stored_objects: &StoredObjects,
    names: &[String],
    observed: &mut Observed,
    leads: bool,
    show: impl Fn(&WebhookCertificates) -> Result<(), String>,
) -> Result<Duration, CertificateStoreError> {
    let Some(secret) = &observed.secret else { return Ok(LONGEST_WAIT) };
    let now = OffsetDateTime::now_utc();
    let stored = secret.as_ref().and_then(read);
    let next = match &stored {
        None => Some(WebhookCertificates::make(names, now)?),
        Some(stored) => match stored.renewed(names, now) {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(%error, "the webhook's certificate cannot be used; a new one is created");
                Some(WebhookCertificates::make(names, now)?)
            }
        },
    };
    if let Some(next) = next {
        match store(&stored_objects.secrets, secret.as_ref(), &next).await {
            Ok(written) => observed.secret = Some(Some(written)),
            // Another replica was faster; the watch delivers its Secret.
            Err(kube::Error::Api(status)) if status.code == 409 => return Ok(RETRY_PAUSE),
            Err(error) => return Err(CertificateStoreError::Write(error)),
        }
    }
    let Some(current) = observed.secret.iter().flatten().next().and_then(read) else {
        return Ok(RETRY_PAUSE);
    };
    show(&current).map_err(CertificateStoreError::Show)?;
    if leads {
        trust(&stored_objects.validating, observed.validating.as_ref(), &current.authorities).await?;
        trust(&stored_objects.mutating, observed.mutating.as_ref(), &current.authorities).await?;
    }
    let left = (current.due()? - now).unsigned_abs();
    Ok(left.clamp(RETRY_PAUSE, LONGEST_WAIT))
}

/// Names by which an API server reaches the Service.
fn names(store: &CertificateStore) -> Vec<String> {
    let service = format!("{WEBHOOK_SERVICE}.{}.svc", store.namespace);
    let mut names = vec![service.clone(), format!("{service}.cluster.local")];
    names.extend(store.names.iter().cloned());
    names
}

const FIELDS: [&str; 4] = ["ca.crt", "ca.key", "tls.crt", "tls.key"];

fn read(secret: &Secret) -> Option<WebhookCertificates> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let [authorities, authority_key, leaf, leaf_key] = FIELDS.map(text);
    Some(WebhookCertificates {
        authorities: authorities?,
        authority_key: authority_key?,
        leaf: leaf?,
        leaf_key: leaf_key?,
    })
}

/// Creates the Secret or replaces the observed one. 409 when another replica was first.
async fn store(
    secrets: &Api<Secret>,
    observed: Option<&Secret>,
    certificates: &WebhookCertificates,
) -> Result<Secret, kube::Error> {
    let WebhookCertificates { authorities, authority_key, leaf, leaf_key } = certificates;
    let data: BTreeMap<String, ByteString> = FIELDS
        .into_iter()
        .zip([authorities, authority_key, leaf, leaf_key])
        .map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())))
        .collect();
    let metadata = ObjectMeta {
        name: Some(WEBHOOK_SECRET.to_owned()),
        resource_version: observed.and_then(|secret| secret.resource_version()),
        labels: Some([("app.kubernetes.io/part-of".to_owned(), "kubeon".to_owned())].into()),
        ..ObjectMeta::default()
    };
    let secret = Secret {
        metadata,
        data: Some(data),
        type_: Some(
            observed
                .and_then(|secret| secret.type_.clone())
                .unwrap_or_else(|| "kubernetes.io/tls".to_owned()),
        ),
        ..Secret::default()
    };
    match observed {
        None => secrets.create(&PostParams::default(), &secret).await,
        Some(_) => secrets.replace(WEBHOOK_SECRET, &PostParams::default(), &secret).await,
    }
}

/// Writes the authorities into a webhook configuration unless they are there.
async fn trust<K: WebhookConfiguration>(
    configurations: &Api<K>,
    configuration: Option<&K>,
    authorities: &str,
) -> Result<(), CertificateStoreError> {
    let Some(configuration) = configuration else { return Ok(()) };
    let wanted = ByteString(authorities.as_bytes().to_vec());
    let stale: Vec<usize> = configuration
        .clients()
        .into_iter()
        .enumerate()
        .filter(|(_, client)| client.ca_bundle.as_ref() != Some(&wanted))
        .map(|(index, _)| index)
        .collect();
    if stale.is_empty() {
        return Ok(());
    }
    let mut changes = vec![json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": configuration.resource_version(),
    })];
    changes.extend(stale.into_iter().map(|index| {
        json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": wanted})
    }));
    let patch = Patch::<()>::Json(
        serde_json::from_value(Value::Array(changes)).map_err(CertificateStoreError::Patch)?,
    );
    match configurations.patch(WEBHOOK_CONFIGURATION, &PatchParams::default(), &patch).await {
        Ok(_) => {
            tracing::info!(kind = %K::kind(&()), "the API server trusts the webhook's authority");
            Ok(())
        }
        // The configuration has changed: the watch delivers the new one.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
        Err(source) => Err(CertificateStoreError::Trust { kind: K::kind(&()).into_owned(), source }),
    }
}

fn with_source(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
