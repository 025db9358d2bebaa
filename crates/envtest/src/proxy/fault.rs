//! What the proxy does to a request.

use std::time::Duration;

/// What the proxy does to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyFault {
    /// Answered with this HTTP status and a matching `Status` object; the server never sees it.
    Status(u16),
    /// Answered with 429 and `Retry-After` in seconds; the server never sees it.
    RetryAfter(u32),
    /// Forwarded after this time.
    Delay(Duration),
    /// Never answered; the server never sees it.
    Hang,
    /// Forwarded; the client gets no answer.
    HangAfter,
    /// Its connection is closed; the server never sees it.
    Refuse,
    /// Forwarded; its connection is closed without the answer.
    LoseAnswer,
    /// All connections are closed and new ones refused until [`FaultProxy::heal`](crate::FaultProxy::heal); the server never sees it.
    CutBefore,
    /// Forwarded, then as `CutBefore`: the state that a client leaves that dies after this write.
    CutAfter,
}
