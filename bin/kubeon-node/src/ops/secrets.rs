//! Stores all Secrets again, so that none is left under an old key.

use std::time::Duration;

use kubeon_wire::StepFailure;
use serde_json::{Value, json};

use super::node::until_accepted;
use crate::api::{Api, check_path};
use crate::failure::failed;
use crate::job::{Job, StepEffect};

/// The time limit of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Secrets of one page: each has at most one MiB.
const PAGE: usize = 100;

/// Writes every Secret without a change. The API server stores it again if it was stored under another key than the one that
/// encrypts now.
///
/// # Errors
/// If the API server does not accept a request in time.
pub fn rewrite(job: &Job<'_>) -> Result<StepEffect, StepFailure> {
    let api = Api::local(job.host)?;
    let (mut next, mut written) = (String::new(), 0);
    loop {
        let page = page(job, &api, &next)?;
        for secret in page["items"].as_array().into_iter().flatten() {
            let field = |name: &str| secret["metadata"][name].as_str().unwrap_or_default();
            let path = format!("/api/v1/namespaces/{}/secrets/{}", field("namespace"), field("name"));
            check_path(&path)?;
            until_accepted(job, &format!("Secret {path} is not stored again"), || {
                api.merge(&path, &json!({}), CALL_TIMEOUT.min(job.left()))
            })?;
            written += 1;
            job.progressed();
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => token.clone_into(&mut next),
            _ => break,
        }
    }
    job.note(format!("stored {written} Secrets again"));
    Ok(StepEffect { changed: written > 0, ..StepEffect::default() })
}

/// A page of the list of Secrets; `next` is the token of the page before.
fn page(job: &Job<'_>, api: &Api, next: &str) -> Result<Value, StepFailure> {
    let more = if next.is_empty() { String::new() } else { format!("&continue={next}") };
    let answer = until_accepted(job, "the Secrets are not listed", || {
        api.get(&format!("/api/v1/secrets?limit={PAGE}{more}"), CALL_TIMEOUT.min(job.left()))
    })?;
    serde_json::from_str(&answer.body).map_err(|error| failed(format!("the list of Secrets: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::testing_api::{Reply, serve};

    #[test]
    fn every_secret_of_every_page_is_written_once() {
        let mut bench = Bench::new();
        let secret = |name: &str| json!({"metadata": {"namespace": "default", "name": name}, "data": {}});
        let requests = serve(&mut bench, move |method, path, number| match (method, number) {
            ("GET", 0) => {
                let list = json!({"metadata": {"continue": "next"}, "items": [secret("a"), secret("b")]});
                Reply::Json(200, list.to_string())
            }
            ("GET", _) if path.ends_with("&continue=next") => {
                Reply::Json(200, json!({"metadata": {}, "items": [secret("c")]}).to_string())
            }
            (_, 2) => Reply::Json(409, json!({"message": "the object has been modified"}).to_string()),
            _ if path.contains("/b") => Reply::Json(404, json!({"message": "deleted"}).to_string()),
            _ => Reply::Json(200, "{}".to_owned()),
        });
        assert!(rewrite(&bench.job()).unwrap().changed);
        let written = requests.lock();
        let mut written: Vec<String> = written
            .iter()
            .filter(|(method, ..)| method == "PATCH")
            .map(|(_, path, _)| {
                path.split('?').next().unwrap_or_default().replace("/api/v1/namespaces/default", "")
            })
            .collect();
        written.dedup();
        assert_eq!(written, ["/secrets/a", "/secrets/b", "/secrets/c"]);
    }
}
