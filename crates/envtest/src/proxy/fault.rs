//! Faults of requests.

use std::time::Duration;

/// A fault that the proxy injects into a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyFault {
    /// Answered with this HTTP status and a matching `Status` object; the request does not reach the server.
    Status(u16),
    /// Answered with 429 and `Retry-After` in seconds; the request does not reach the server.
    RetryAfter(u32),
    /// Forwarded after this time.
    Delay(Duration),
    /// Never answered; the request does not reach the server.
    Hang,
    /// Forwarded; the client gets no answer.
    HangAfter,
    /// Its connection is closed; the request does not reach the server.
    Refuse,
    /// Forwarded; its connection is closed without the answer.
    LoseAnswer,
    /// All connections are closed and new connections are refused until [`FaultProxy::heal`](crate::FaultProxy::heal);
    /// the request does not reach the server.
    CutBefore,
    /// Forwarded, then as `CutBefore`: the state after a client that crashed after this write.
    CutAfter,
}
