//! HTTPS with the cluster's own certificates, to addresses, never through a proxy.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubeon_wire::StepFailure;
use ureq::tls::{ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::failure::{Doing, failed, plain};

/// The largest answer that is taken: a list of thousands of nodes fits.
const ANSWER_LIMIT: u64 = 256 << 20;

/// Why there was no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// Nobody listens there, or nobody whom the certificates know. That is sure.
    Nobody(String),
    /// Nothing came in time, or the connection broke: somebody may be there.
    Unknown(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Nobody(why) | Self::Unknown(why)) = self;
        f.write_str(why)
    }
}

/// A client that keeps its connections.
#[derive(Debug)]
pub struct Https {
    agent: ureq::Agent,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

impl Https {
    /// A client that trusts the authorities in `ca`, and shows the certificate and key of `identity`.
    ///
    /// # Errors
    /// When a file cannot be read or holds nothing of the kind.
    pub fn open(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Self, StepFailure> {
        let (authorities, _) = pem(ca)?;
        if authorities.is_empty() {
            return Err(failed(format!("{} holds no certificate", ca.display())));
        }
        let identity = identity.map(|(certificate, key)| identify(certificate, key)).transpose()?;
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(authorities)))
            .client_cert(identity)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .proxy(None)
            .https_only(true)
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent("kubeon-node")
            .build();
        Ok(Self { agent: config.new_agent() })
    }

    /// Sends a GET.
    ///
    /// # Errors
    /// Why there was no answer, in a few words.
    pub fn get(&self, url: &str, timeout: Duration) -> Result<HttpResponse, NoAnswer> {
        let request = self.agent.get(url).config().timeout_global(Some(timeout)).build();
        answer(request.call())
    }

    /// Sends a body of the given type.
    ///
    /// # Errors
    /// Why there was no answer, in a few words.
    pub fn send(
        &self,
        method: Method,
        url: &str,
        kind: &str,
        body: &[u8],
        timeout: Duration,
    ) -> Result<HttpResponse, NoAnswer> {
        let request = match method {
            Method::Patch => self.agent.patch(url),
            Method::Post => self.agent.post(url),
        };
        let request = request.config().timeout_global(Some(timeout)).build();
        answer(request.content_type(kind).send(body))
    }

    /// Sends a DELETE.
    ///
    /// # Errors
    /// Why there was no answer, in a few words.
    pub fn delete(&self, url: &str, timeout: Duration) -> Result<HttpResponse, NoAnswer> {
        let request = self.agent.delete(url).config().timeout_global(Some(timeout)).build();
        answer(request.call())
    }

    /// Sends a GET whose answer goes on for a while: its lines. An answer other than 200 is an error.
    ///
    /// # Errors
    /// Why there was no such answer, in a few words.
    pub fn lines(&self, url: &str, timeout: Duration) -> Result<impl BufRead + use<>, String> {
        let request = self.agent.get(url).config().timeout_global(Some(timeout)).build();
        let response = request.call().map_err(|error| say(&error).to_string())?;
        if response.status().as_u16() == 200 {
            return Ok(BufReader::with_capacity(64 << 10, response.into_body().into_reader()));
        }
        let HttpResponse { status, body } = answer(Ok(response)).map_err(|why| why.to_string())?;
        Err(format!("HTTP {status}: {}", body.lines().next().unwrap_or_default()))
    }
}

/// How a body is sent.
#[derive(Debug, Clone, Copy)]
pub enum Method {
    /// PATCH.
    Patch,
    /// POST.
    Post,
}

fn answer(outcome: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<HttpResponse, NoAnswer> {
    let response = outcome.map_err(|error| say(&error))?;
    let status = response.status().as_u16();
    let body = response.into_body().into_with_config().limit(ANSWER_LIMIT).lossy_utf8(true);
    Ok(HttpResponse { status, body: body.read_to_string().map_err(|error| say(&error))? })
}

/// Whether reading an answer that goes on ended because its time was up.
#[must_use]
pub fn is_time_up(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    error.kind() == io::ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_)))
}

fn say(error: &ureq::Error) -> NoAnswer {
    match error {
        // Bytes that are no TLS, and certificates that are refused on either side, count as invalid data.
        ureq::Error::Io(error)
            if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::InvalidData) =>
        {
            NoAnswer::Nobody(plain(error))
        }
        ureq::Error::Io(error) => NoAnswer::Unknown(plain(error)),
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => NoAnswer::Nobody(error.to_string()),
        ureq::Error::Timeout(_) => NoAnswer::Unknown("no answer in time".to_owned()),
        other => NoAnswer::Unknown(other.to_string()),
    }
}

type Found = (Vec<ureq::tls::Certificate<'static>>, Vec<PrivateKey<'static>>);

fn pem(place: &Path) -> Result<Found, StepFailure> {
    let text = fs::read(place).doing("read", place)?;
    let (mut certificates, mut keys) = (Vec::new(), Vec::new());
    for item in parse_pem(&text) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(PemItem::PrivateKey(key)) => keys.push(key),
            Ok(_) => {}
            Err(_) => return Err(failed(format!("{} is not PEM", place.display()))),
        }
    }
    Ok((certificates, keys))
}

fn identify(certificate: &Path, key: &Path) -> Result<ClientCert, StepFailure> {
    let (chain, _) = pem(certificate)?;
    let (_, mut keys) = pem(key)?;
    match keys.pop() {
        Some(key) if !chain.is_empty() => Ok(ClientCert::new_with_certs(&chain, key)),
        Some(_) => Err(failed(format!("{} holds no certificate", certificate.display()))),
        None => Err(failed(format!("{} holds no key", key.display()))),
    }
}
