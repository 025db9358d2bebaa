//! Downloads from the servers of the authors, or from a mirror of them.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_https::{AttemptFailure, FIRST_WAIT, repeated};
use ureq::http::{Response, StatusCode, header};
use ureq::tls::RootCerts;
use ureq::{Agent, Body};

use super::error::PublishedError;
use crate::digest;
use crate::manifest::PublishedFile;

/// How often a download is tried, or continued. Attempts that bring bytes are not counted.
const ATTEMPTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit of the head of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of one answer. An unfinished download is continued by the next attempt.
const BODY_TIMEOUT: Duration = Duration::from_secs(600);
/// The most bytes of a document of sums or of a registry.
const DOCUMENT_LIMIT: u64 = 8 << 20;
/// The most bytes of a published file. A server that never ends would fill the disk.
const FILE_LIMIT: u64 = 1 << 30;
/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(250);

/// The servers of the authors, or a mirror.
pub(crate) struct Server {
    agent: Agent,
    mirror: Option<String>,
    /// The folder of files that are being downloaded.
    downloads: PathBuf,
    /// The most bytes of a file.
    pub(super) file_limit: u64,
}

type Ended = AttemptFailure<PublishedError>;

impl Server {
    /// Whether files come from a mirror. Its owner decides how old they may be.
    pub(crate) fn is_mirror(&self) -> bool {
        self.mirror.is_some()
    }

    /// `mirror` is an address below which the servers are folders: `https://MIRROR/dl.k8s.io/…`.
    pub(crate) fn new(mirror: Option<&str>, cache: &Path) -> Result<Self, PublishedError> {
        // The certificates of this machine, or of $SSL_CERT_FILE.
        Self::trusting(RootCerts::PlatformVerifier, mirror, cache)
    }

    /// A server whose certificate these authorities signed.
    pub(super) fn trusting(
        authorities: RootCerts,
        mirror: Option<&str>,
        cache: &Path,
    ) -> Result<Self, PublishedError> {
        let is_wrong = |mirror: &&str| mirror.strip_prefix("https://").is_none_or(str::is_empty);
        if let Some(mirror) = mirror.filter(is_wrong) {
            return Err(PublishedError::Mirror(mirror.to_owned()));
        }
        let config = Agent::config_builder()
            .tls_config(kubeon_https::tls(authorities).build())
            .https_only(true)
            .http_status_as_error(false)
            .user_agent(concat!("kubeon/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .timeout_recv_body(Some(BODY_TIMEOUT))
            .build();
        let downloads = cache.join("downloads");
        fs::create_dir_all(&downloads).map_err(PublishedError::file(&downloads))?;
        let mirror = mirror.map(|mirror| mirror.trim_end_matches('/').to_owned());
        Ok(Self { agent: config.into(), mirror, downloads, file_limit: FILE_LIMIT })
    }

    /// Where this server has the file.
    pub(super) fn address(&self, url: &str) -> String {
        match &self.mirror {
            Some(mirror) => format!("{mirror}/{}", url.trim_start_matches("https://")),
            None => url.to_owned(),
        }
    }

    /// A small document.
    pub(crate) fn document(&self, url: &str, accept: &str) -> Result<Vec<u8>, PublishedError> {
        let url = &self.address(url);
        let attempt = || -> Result<Vec<u8>, Ended> {
            let answer = self.ask(url, accept, 0)?;
            let (wanted, mut text) = (length(&answer), Vec::new());
            let body = answer.into_body().into_reader().take(DOCUMENT_LIMIT);
            { body }.read_to_end(&mut text).map_err(|error| Ended::Again(error.to_string()))?;
            match wanted {
                Some(wanted) if wanted != text.len() as u64 => {
                    Err(Ended::Again(cut(text.len() as u64, wanted)))
                }
                _ => Ok(text),
            }
        };
        repeated(ATTEMPTS, attempt, |why| PublishedError::Server { url: url.clone(), why })
    }

    /// Downloads the file, or what is missing of it, and returns its path. `on_bytes` gets the bytes so far and in all.
    pub(crate) fn download(
        &self,
        file: &PublishedFile,
        on_bytes: &dyn Fn(u64, u64),
    ) -> Result<PathBuf, PublishedError> {
        let (url, path) = (self.address(&file.url), self.downloads.join(file.sha256.as_str()));
        let (mut attempts, mut wait) = (0, FIRST_WAIT);
        loop {
            let before = size_of(&path);
            match self.fetch(&url, &path, on_bytes) {
                Ok(()) => break,
                Err(Ended::Never(error)) => return Err(error),
                Err(Ended::Again(why)) => {
                    (attempts, wait) =
                        if size_of(&path) > before { (1, FIRST_WAIT) } else { (attempts + 1, wait) };
                    if attempts == ATTEMPTS {
                        return Err(PublishedError::Server { url, why });
                    }
                    thread::sleep(wait);
                    wait *= 2;
                }
            }
        }
        let (found, _) = digest::of_file(&path).map_err(PublishedError::file(&path))?;
        if found != file.sha256 {
            fs::remove_file(&path).map_err(PublishedError::file(&path))?;
            return Err(PublishedError::WrongDigest { url, expected: file.sha256.clone(), found });
        }
        Ok(path)
    }

    /// One attempt: asks for the bytes that are missing at `path` and appends them.
    fn fetch(&self, url: &str, path: &Path, on_bytes: &dyn Fn(u64, u64)) -> Result<(), Ended> {
        let unwritable = |error| Ended::Never(PublishedError::file(path)(error));
        let mut have = size_of(path);
        let answer = self.ask(url, "*/*", have)?;
        if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            // Either the file is complete, or it is another one: its digest tells.
            return Ok(());
        }
        let mut options = File::options();
        if answer.status() == StatusCode::PARTIAL_CONTENT && begins_at(&answer, have) {
            options.append(true);
        } else if answer.status() == StatusCode::PARTIAL_CONTENT {
            fs::remove_file(path).map_err(unwritable)?;
            return Err(Ended::Again("the server sent another range than it was asked for".to_owned()));
        } else {
            have = 0;
            options.write(true).create(true).truncate(true);
        }
        let total = length(&answer).map(|length| length.saturating_add(have));
        let too_large = || {
            let why = format!("the file is larger than {} MiB", self.file_limit >> 20);
            // Nothing of it would be used.
            let _ = fs::remove_file(path);
            Ended::Never(PublishedError::Server { url: url.to_owned(), why })
        };
        if total.is_some_and(|total| total > self.file_limit) {
            return Err(too_large());
        }
        let mut out = options.open(path).map_err(unwritable)?;
        let mut body = answer.into_body().into_reader();
        let (mut buffer, mut reported) = (vec![0; 1 << 16], Instant::now());
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) => return Err(Ended::Again(error.to_string())),
            };
            out.write_all(&buffer[..count]).map_err(unwritable)?;
            have += count as u64;
            if have > self.file_limit {
                return Err(too_large());
            }
            if reported.elapsed() >= REPORT_EVERY {
                on_bytes(have, total.unwrap_or(0));
                reported = Instant::now();
            }
        }
        match total {
            Some(total) if total != have => Err(Ended::Again(cut(have, total))),
            _ => Ok(()),
        }
    }

    /// Sends a request for the bytes from `first` on.
    fn ask(&self, url: &str, accept: &str, first: u64) -> Result<Response<Body>, Ended> {
        let mut request = self.agent.get(url).header(header::ACCEPT, accept);
        if first > 0 {
            request = request.header(header::RANGE, format!("bytes={first}-"));
        }
        let answer = request.call().map_err(|error| Ended::Again(error.to_string()))?;
        let status = answer.status();
        if status.is_success() || (first > 0 && status == StatusCode::RANGE_NOT_SATISFIABLE) {
            return Ok(answer);
        }
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(Ended::Again(format!("the server answered HTTP {status}")));
        }
        Err(Ended::Never(PublishedError::Absent { url: url.to_owned(), status: status.as_u16() }))
    }
}

fn size_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn length(answer: &Response<Body>) -> Option<u64> {
    answer.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The answer contains the bytes from that one on.
fn begins_at(answer: &Response<Body>, first: u64) -> bool {
    let range = answer.headers().get(header::CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {first}-")))
}

fn cut(have: u64, total: u64) -> String {
    format!("the answer ended after {have} of {total} bytes")
}
