//! Where a span is: its trace and its own id, as `traceparent` of W3C says it.

use std::fmt;
use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

/// Where a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
}

/// A text that names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no traceparent of version 00")]
pub struct NoPlace(String);

impl Place {
    /// A new place under this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { trace: self.trace, span: RandomIdGenerator::default().new_span_id() }
    }

    pub(crate) fn context(&self) -> SpanContext {
        SpanContext::new(self.trace, self.span, TraceFlags::SAMPLED, true, TraceState::default())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.trace, self.span)
    }
}

impl FromStr for Place {
    type Err = NoPlace;
    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let wrong = || NoPlace(text.chars().take(64).collect());
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
    fn is_read_back_from_what_it_is_written_as() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let place: Place = text.parse().unwrap();
        assert_eq!(place.to_string(), text);
        let child = place.child();
        assert!(child.trace == place.trace && child.span != place.span);
        for wrong in [
            "",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
