//! Answers an `AdmissionReview`.

use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use kube::core::response::{Status, StatusSummary};

use crate::lookup::Lookup;
use crate::rules::decide;
use crate::verdict::AdmissionVerdict;

/// The answer to a request's body: HTTP code and body. 400 when the body is not a review with a request.
#[must_use]
pub fn answer(body: &[u8], lookup: &dyn Lookup) -> (u16, Vec<u8>) {
    let review: AdmissionReview<DynamicObject> = match serde_json::from_slice(body) {
        Ok(review) => review,
        Err(error) => return (400, format!("not an AdmissionReview: {error}\n").into_bytes()),
    };
    let request: AdmissionRequest<DynamicObject> = match review.try_into() {
        Ok(request) => request,
        Err(error) => return (400, format!("not an AdmissionReview: {error}\n").into_bytes()),
    };
    let verdict = decide(&request, lookup);
    tracing::debug!(
        kind = request.kind.kind,
        name = request.name,
        namespace = request.namespace,
        user = request.user_info.username,
        allowed = verdict.allowed(),
        message = verdict.message(),
        "reviewed"
    );
    match serde_json::to_vec(&response(&request, &verdict).into_review()) {
        Ok(body) => (200, body),
        Err(error) => (500, format!("writing the answer: {error}\n").into_bytes()),
    }
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
            let (code, text) = answer(body.as_bytes(), &book);
            assert_eq!(code, 400, "{body}");
            assert!(String::from_utf8(text).unwrap().starts_with("not an AdmissionReview"), "{body}");
        }
    }
}
