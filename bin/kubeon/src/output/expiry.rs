//! When the certificates of a cluster end, for people and as data.

use kubeon_wire::CertificateExpiry;
use serde::Serialize;

/// The certificate that ends first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExpiryView {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    path: String,
    renews: String,
    expires: String,
    residual_days: i64,
    #[serde(skip)]
    text: String,
}

impl ExpiryView {
    /// `now` is in seconds since 1970.
    pub(crate) fn new(earliest: &CertificateExpiry, now: i64) -> Self {
        Self {
            host: earliest.host.clone(),
            path: earliest.path.clone(),
            renews: time(earliest.renews_at),
            expires: time(earliest.expires_at),
            residual_days: (earliest.expires_at - now).div_euclid(86_400),
            text: text(earliest, now),
        }
    }

    /// `renew in 7mo`; `expire in 20d` if the renewal is due; `expired`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// A sentence that names the certificate, and its host if it is known.
    pub(crate) fn sentence(&self) -> String {
        let host = self.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
        format!("earliest expiry: {}{host} at {} ({})", self.path, self.expires, self.text)
    }
}

fn text(earliest: &CertificateExpiry, now: i64) -> String {
    match (earliest.renews_at - now, earliest.expires_at - now) {
        (_, ..=0) => "expired".to_owned(),
        (..=0, left) => format!("expire in {}", span(left)),
        (left, _) => format!("renew in {}", span(left)),
    }
}

/// `40m`, `30h`, `20d`, `7mo`, `66y`: one unit, the largest that fits twice.
fn span(seconds: i64) -> String {
    match seconds {
        ..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        172_800..5_184_000 => format!("{}d", seconds / 86_400),
        5_184_000..63_072_000 => format!("{}mo", seconds / 2_592_000),
        _ => format!("{}y", seconds / 31_536_000),
    }
}

/// A time in UTC, from seconds since 1970.
pub(crate) fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds)
        .map_or_else(|_| "?".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_when_certificates_are_renewed_and_when_they_expire() {
        const DAY: i64 = 86_400;
        let earliest = CertificateExpiry {
            host: None,
            path: "/etc/kubernetes/pki/apiserver.crt".to_owned(),
            renews_at: 240 * DAY,
            expires_at: 365 * DAY,
        };
        let at = |day: i64| ExpiryView::new(&earliest, day * DAY);
        assert_eq!(at(0).text(), "renew in 8mo");
        assert_eq!(at(239).text(), "renew in 24h");
        assert_eq!(at(345).text(), "expire in 20d");
        assert_eq!((at(366).text(), at(366).residual_days), ("expired", -1));
        let json = serde_json::json!({
            "path": "/etc/kubernetes/pki/apiserver.crt", "residualDays": 365,
            "renews": "1970-08-29 00:00 UTC", "expires": "1971-01-01 00:00 UTC",
        });
        assert_eq!(serde_json::to_value(at(0)).unwrap(), json);
        let sentence =
            "earliest expiry: /etc/kubernetes/pki/apiserver.crt at 1971-01-01 00:00 UTC (renew in 8mo)";
        assert_eq!(at(0).sentence(), sentence);
        let worker = ExpiryView::new(&CertificateExpiry { host: Some("w1".to_owned()), ..earliest }, 0);
        assert_eq!(worker.sentence(), sentence.replace(" at ", " on w1 at "));
        assert_eq!(serde_json::to_value(worker).unwrap()["host"], "w1");
    }
}
