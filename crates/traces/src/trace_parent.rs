//! The ids of a span and of its trace, in the form of the W3C header `traceparent`.

use std::fmt;
use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

/// The ids of a span and of its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
}

/// A text that is not a valid `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a traceparent of version 00")]
pub struct InvalidTraceParent(String);

impl TraceParent {
    /// The ids of a new child span.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { trace: self.trace, span: RandomIdGenerator::default().new_span_id() }
    }

    pub(crate) fn context(&self) -> SpanContext {
        SpanContext::new(self.trace, self.span, TraceFlags::SAMPLED, true, TraceState::default())
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.trace, self.span)
    }
}

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;
    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let wrong = || InvalidTraceParent(text.chars().take(64).collect());
        let parts: Vec<&str> = text.split('-').collect();
        let ["00", trace, span, flags] = parts.as_slice() else { return Err(wrong()) };
        let hex =
            |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !(hex(trace, 32) && hex(span, 16) && hex(flags, 2)) {
            return Err(wrong());
        }
        let trace = TraceId::from_hex(trace).map_err(|_| wrong())?;
        let span = SpanId::from_hex(span).map_err(|_| wrong())?;
        if trace == TraceId::INVALID || span == SpanId::INVALID {
            Err(wrong())
        } else {
            Ok(Self { trace, span })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_its_own_text() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let ids: TraceParent = text.parse().unwrap();
        assert_eq!(ids.to_string(), text);
        let child = ids.child();
        assert!(child.trace == ids.trace && child.span != ids.span);
        for wrong in [
            "",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(wrong.parse::<TraceParent>().is_err(), "{wrong}");
        }
    }
}
