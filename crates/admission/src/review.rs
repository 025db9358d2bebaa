//! Answers an `AdmissionReview`.

use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, SerializePatchError};
use kube::core::response::{Status, StatusSummary};

use crate::lookup::Lookup;
use crate::requester;
use crate::rules::decide;
use crate::verdict::AdmissionVerdict;

/// The answer to a request's body by the rules: HTTP code and body. 400 when the body is not a review with a request.
#[must_use]
pub fn answer(body: &[u8], lookup: &dyn Lookup) -> (u16, Vec<u8>) {
    answer_with(body, |request| {
        let verdict = decide(request, lookup);
        log(request, &verdict);
        Ok(response(request, &verdict))
    })
}

/// The answer that records who asked for an operation, like [`answer`].
#[must_use]
pub fn answer_with_requester(body: &[u8]) -> (u16, Vec<u8>) {
    answer_with(body, |request| {
        let patch = requester::patch(request);
        let response = AdmissionResponse::from(request);
        if patch.is_empty() { Ok(response) } else { response.with_patch(patch) }
    })
}

fn answer_with(
    body: &[u8],
    review: impl FnOnce(&AdmissionRequest<DynamicObject>) -> Result<AdmissionResponse, SerializePatchError>,
) -> (u16, Vec<u8>) {
    let no_review =
        |error: &dyn std::fmt::Display| (400, format!("not an AdmissionReview: {error}\n").into_bytes());
    let request: AdmissionReview<DynamicObject> = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(error) => return no_review(&error),
    };
    let request: AdmissionRequest<DynamicObject> = match request.try_into() {
        Ok(request) => request,
        Err(error) => return no_review(&error),
    };
    let failed = |error: &dyn std::fmt::Display| (500, format!("writing the answer: {error}\n").into_bytes());
    match review(&request) {
        Ok(response) => match serde_json::to_vec(&response.into_review()) {
            Ok(body) => (200, body),
            Err(error) => failed(&error),
        },
        Err(error) => failed(&error),
    }
}

fn log(request: &AdmissionRequest<DynamicObject>, verdict: &AdmissionVerdict) {
    tracing::debug!(
        kind = request.kind.kind,
        name = request.name,
        namespace = request.namespace,
        user = request.user_info.username,
        allowed = verdict.allowed(),
        message = verdict.message(),
        "reviewed"
    );
}

fn response(request: &AdmissionRequest<DynamicObject>, verdict: &AdmissionVerdict) -> AdmissionResponse {
    let mut response = AdmissionResponse::from(request);
    if !verdict.allowed() {
        let mut status =
            Status::failure(&verdict.message(), reason(verdict.code())).with_code(verdict.code());
        status.status = Some(StatusSummary::Failure);
        response.allowed = false;
        response.result = status;
    }
    if !verdict.warnings.is_empty() {
        response.warnings = Some(verdict.warnings.clone());
    }
    response
}

fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        422 => "Invalid",
        503 => "ServiceUnavailable",
        _ => "Forbidden",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::AddressBook;

    /// Contract A, case 43.
    #[test]
    fn answers_400_to_what_is_no_review() {
        let book = AddressBook::new(vec![]);
        for body in ["", "{", "{}", "[]", r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#]
        {
            for (code, text) in [answer(body.as_bytes(), &book), answer_with_requester(body.as_bytes())] {
                assert_eq!(code, 400, "{body}");
                assert!(String::from_utf8(text).unwrap().starts_with("not an AdmissionReview"), "{body}");
            }
        }
    }
}
