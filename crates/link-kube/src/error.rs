//! Errors of requests, and whether a request may be retried.

use std::time::Duration;

/// Whether and when a request may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryClass {
    /// After the object was read again, because it has changed.
    Reread,
    /// The object to create exists.
    Exists,
    /// After a pause that grows with each attempt.
    Later,
    /// After something else changed: a permission, a parent object, a quota.
    AfterChange,
    /// Never, because the request is invalid.
    Never,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The API server refused it.
    #[error("{action}: the API server answered {code} {reason}: {message}")]
    Refused {
        /// The request, such as `create Job ns/name`.
        action: String,
        /// The HTTP code.
        code: u16,
        /// The reason, such as `Invalid`.
        reason: String,
        /// The message of the API server.
        message: String,
    },
    /// There was no answer in time.
    #[error("{action}: no answer within {} s", after.as_secs())]
    Silent {
        /// What was asked.
        action: String,
        /// How long was waited.
        after: Duration,
    },
    /// The connection failed.
    #[error("{action}: the API server was not reached")]
    Lost {
        /// What was asked.
        action: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
}

impl LinkError {
    pub(crate) fn of(action: &str, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused {
                action: action.to_owned(),
                code: status.code,
                reason: status.reason,
                message: status.message,
            },
            source => Self::Lost { action: action.to_owned(), source: Box::new(source) },
        }
    }

    /// One word for metrics and events.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Refused { .. } => match self.retry_class() {
                RetryClass::Reread => "conflict",
                RetryClass::Exists => "exists",
                RetryClass::Later => "busy",
                RetryClass::AfterChange => "forbidden",
                RetryClass::Never => "invalid",
            },
            Self::Silent { .. } => "timeout",
            Self::Lost { .. } => "lost",
        }
    }

    /// Whether and when the request may be retried.
    #[must_use]
    pub fn retry_class(&self) -> RetryClass {
        match self {
            Self::Refused { code: 409, reason, .. } if reason == "AlreadyExists" => RetryClass::Exists,
            Self::Refused { code: 409, .. } => RetryClass::Reread,
            Self::Refused { code: 401 | 403 | 404, .. } => RetryClass::AfterChange,
            Self::Refused { code: 400 | 405 | 413 | 415 | 422, .. } => RetryClass::Never,
            Self::Refused { .. } | Self::Silent { .. } | Self::Lost { .. } => RetryClass::Later,
        }
    }

    /// Whether the API server may have executed the request although it failed.
    #[must_use]
    pub fn may_be_executed(&self) -> bool {
        match self {
            Self::Refused { code, .. } => *code >= 500,
            Self::Silent { .. } | Self::Lost { .. } => true,
        }
    }

    /// Whether the object, or its namespace, does not exist.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { code: 404 | 410, .. })
    }

    /// The message of the API server, without the request.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Refused { message, .. } if !message.is_empty() => message.clone(),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_retry_class() {
        let refused = |code, reason: &str| LinkError::Refused {
            action: String::new(),
            code,
            reason: reason.to_owned(),
            message: String::new(),
        };
        for (code, reason, again) in [
            (409, "Conflict", RetryClass::Reread),
            (409, "AlreadyExists", RetryClass::Exists),
            (429, "TooManyRequests", RetryClass::Later),
            (500, "InternalError", RetryClass::Later),
            (503, "", RetryClass::Later),
            (504, "Timeout", RetryClass::Later),
            (403, "Forbidden", RetryClass::AfterChange),
            (404, "NotFound", RetryClass::AfterChange),
            (422, "Invalid", RetryClass::Never),
        ] {
            assert_eq!(refused(code, reason).retry_class(), again, "{code} {reason}");
            assert_eq!(refused(code, reason).may_be_executed(), code >= 500, "{code} {reason}");
        }
        let silent = LinkError::Silent { action: String::new(), after: Duration::from_secs(1) };
        assert_eq!((silent.retry_class(), silent.category()), (RetryClass::Later, "timeout"));
        assert!(silent.may_be_executed());
    }
}
