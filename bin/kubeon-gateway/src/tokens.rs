//! Who a bearer token belongs to, asked of the meta cluster and remembered for seconds.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::Client;
use kube::api::{Api, PostParams};
use kubeon_api::Secret;
use moka::future::Cache;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::caller::CallerIdentity;
use crate::request_error::RequestError;

/// How long an answer is used. A token that was revoked is accepted for this time.
const LIFETIME: Duration = Duration::from_secs(10);
/// The most answers that are kept.
const CAPACITY: u64 = 20_000;
/// The most reviews at the same time, so that strangers cannot flood the API server; others wait.
const PARALLEL: usize = 64;
/// How long a token of a callback is remembered. It is not valid longer than one hour.
const USED_LIFETIME: Duration = Duration::from_secs(3600);

/// The digest of a token: no token is kept in memory.
type TokenDigest = [u8; 32];

/// Reviews tokens.
#[derive(Clone)]
pub(crate) struct TokenReviews {
    client: Client,
    places: Arc<Semaphore>,
    known: Cache<TokenDigest, Result<CallerIdentity, RequestError>>,
    used: Cache<TokenDigest, ()>,
}

fn digest(token: &Secret) -> TokenDigest {
    Sha256::digest(token.expose().as_bytes()).into()
}

impl TokenReviews {
    /// Reviews with the gateway's own client.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            places: Arc::new(Semaphore::new(PARALLEL)),
            known: Cache::builder().max_capacity(CAPACITY).time_to_live(LIFETIME).build(),
            used: Cache::builder().max_capacity(CAPACITY).time_to_live(USED_LIFETIME).build(),
        }
    }

    /// Who the token belongs to. Parallel questions about one token are one request.
    pub(crate) async fn identity(&self, token: &Secret) -> Result<CallerIdentity, RequestError> {
        let review = async {
            match self.review(token, Vec::new()).await {
                Ok(status) if status.authenticated == Some(true) => {
                    Ok(Ok(CallerIdentity::from(status.user.unwrap_or_default())))
                }
                Ok(_) => Ok(Err(RequestError::unauthorized("the token is not valid in the meta cluster"))),
                Err(error) => Err(error),
            }
        };
        // A failed review is not remembered.
        match self.known.try_get_with(digest(token), review).await {
            Ok(identity) => identity,
            Err(error) => Err((*error).clone()),
        }
    }

    /// The audiences of these that the token has. None: the token is not valid.
    pub(crate) async fn audiences(
        &self,
        token: &Secret,
        audiences: Vec<String>,
    ) -> Result<Vec<String>, RequestError> {
        let status = self.review(token, audiences).await?;
        Ok(if status.authenticated == Some(true) { status.audiences.unwrap_or_default() } else { Vec::new() })
    }

    async fn review(
        &self,
        token: &Secret,
        audiences: Vec<String>,
    ) -> Result<TokenReviewStatus, RequestError> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.expose().to_owned(),
                audiences: Some(audiences).filter(|audiences| !audiences.is_empty()),
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.unwrap_or_default())
    }

    /// Whether the token was used before; from now on it was.
    pub(crate) async fn use_once(&self, token: &Secret) -> bool {
        self.used.entry(digest(token)).or_insert(()).await.is_fresh()
    }

    /// Whether the token was used before.
    pub(crate) fn was_used(&self, token: &Secret) -> bool {
        self.used.contains_key(&digest(token))
    }
}
