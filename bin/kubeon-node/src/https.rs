//! An HTTPS client with the cluster's certificates, which never uses a proxy.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use kubeon_wire::StepFailure;
use ureq::tls::{ClientCert, PemItem, PrivateKey, parse_pem};

use crate::failure::{Doing, failed, plain};

/// The largest accepted answer: enough for a list of thousands of nodes.
const ANSWER_LIMIT: u64 = 256 << 20;

/// Why there was no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// No server listens on the address, or its certificate is not of the cluster.
    NoServer(String),
    /// No answer arrived in time, or the connection broke: a server may exist.
    Unknown(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NoServer(why) | Self::Unknown(why)) = self;
        f.write_str(why)
    }
}

/// A client that reuses its connections.
#[derive(Debug, Clone)]
pub struct Https {
    agent: ureq::Agent,
}

/// An answer with any status.
#[derive(Debug)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

impl Https {
    /// A client that trusts the authorities in `ca` and presents the certificate and key of `identity`.
    ///
    /// # Errors
    /// If a file cannot be read, or does not contain a certificate or key.
    pub fn open(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Self, StepFailure> {
        let authorities = kubeon_https::authorities(&fs::read(ca).doing("read", ca)?)
            .map_err(|error| failed(format!("{} {error}", ca.display())))?;
        let identity = identity.map(|(certificate, key)| identify(certificate, key)).transpose()?;
        let tls = kubeon_https::tls(authorities).client_cert(identity).build();
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
    /// A short text with the cause, if there is no answer.
    pub fn get(&self, url: &str, timeout: Duration) -> Result<HttpResponse, NoAnswer> {
        let request = self.agent.get(url).config().timeout_global(Some(timeout)).build();
        answer(request.call())
    }

    /// Sends a GET. The connection, with its TLS handshake, has a shorter time limit than the answer.
    ///
    /// # Errors
    /// A short text with the cause, if there is no answer.
    pub fn get_connecting(
        &self,
        url: &str,
        connect: Duration,
        timeout: Duration,
    ) -> Result<HttpResponse, NoAnswer> {
        let config = self.agent.get(url).config();
        let request = config.timeout_connect(Some(connect)).timeout_global(Some(timeout)).build();
        answer(request.call())
    }

    /// Sends a body of the given type.
    ///
    /// # Errors
    /// A short text with the cause, if there is no answer.
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
    /// A short text with the cause, if there is no answer.
    pub fn delete(&self, url: &str, timeout: Duration) -> Result<HttpResponse, NoAnswer> {
        let request = self.agent.delete(url).config().timeout_global(Some(timeout)).build();
        answer(request.call())
    }

    /// Sends a GET and returns the lines of its streamed answer. A status other than 200 is an error.
    ///
    /// # Errors
    /// A short text with the cause, if there is no such answer.
    pub fn lines(&self, url: &str, timeout: Duration) -> Result<impl BufRead + use<>, String> {
        let request = self.agent.get(url).config().timeout_global(Some(timeout)).build();
        let response = request.call().map_err(|error| no_answer(&error).to_string())?;
        if response.status().as_u16() == 200 {
            return Ok(BufReader::with_capacity(64 << 10, response.into_body().into_reader()));
        }
        let HttpResponse { status, body } = answer(Ok(response)).map_err(|why| why.to_string())?;
        Err(format!("HTTP {status}: {}", body.lines().next().unwrap_or_default()))
    }
}

/// The method of a request with a body.
#[derive(Debug, Clone, Copy)]
pub enum Method {
    /// PATCH.
    Patch,
    /// POST.
    Post,
}

fn answer(outcome: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<HttpResponse, NoAnswer> {
    let response = outcome.map_err(|error| no_answer(&error))?;
    let status = response.status().as_u16();
    let body = response.into_body().into_with_config().limit(ANSWER_LIMIT).lossy_utf8(true);
    Ok(HttpResponse { status, body: body.read_to_string().map_err(|error| no_answer(&error))? })
}

/// Whether reading a streamed answer ended at its timeout.
#[must_use]
pub fn is_time_up(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    error.kind() == io::ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_)))
}

fn no_answer(error: &ureq::Error) -> NoAnswer {
    match error {
        // Bytes that are not TLS, and certificates that either side refuses, are reported as invalid data.
        ureq::Error::Io(error)
            if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::InvalidData) =>
        {
            NoAnswer::NoServer(plain(error))
        }
        ureq::Error::Io(error) => NoAnswer::Unknown(plain(error)),
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => NoAnswer::NoServer(error.to_string()),
        ureq::Error::Timeout(_) => NoAnswer::Unknown("no answer in time".to_owned()),
        other => NoAnswer::Unknown(other.to_string()),
    }
}

type PemContent = (Vec<ureq::tls::Certificate<'static>>, Vec<PrivateKey<'static>>);

fn pem(place: &Path) -> Result<PemContent, StepFailure> {
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
        Some(_) => Err(failed(format!("{} contains no certificate", certificate.display()))),
        None => Err(failed(format!("{} contains no key", key.display()))),
    }
}
