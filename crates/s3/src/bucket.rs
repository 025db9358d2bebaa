//! Requests to one bucket.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use kubeon_https::{AttemptFailure, repeated};
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, Credentials, S3Action as _, UrlStyle};
use secrecy::ExposeSecret as _;
use ureq::http::{Method, Request, Response, StatusCode, header};
use ureq::tls::RootCerts;
use ureq::{Agent, Body, SendBody};
use url::Url;

use crate::address::S3Address;
use crate::error::S3Error;
use crate::settings::{DEFAULT_REGION, S3Settings};

/// How often a request is tried.
const ATTEMPTS: usize = 4;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit of the head of an answer, after the request was sent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit of one request, so that an attempt with the largest object ends.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1800);
/// How long a signature is valid. The clocks of both machines may differ by less.
const SIGNED_FOR: Duration = Duration::from_secs(3600);
/// The most bytes that one request may upload (S3's own limit).
const UPLOAD_LIMIT: u64 = 5 << 30;
/// The most bytes of a list or of an error that are read.
const DOCUMENT_LIMIT: u64 = 4 << 20;
/// The most lists of up to 1,000 objects that are read.
const LISTS: usize = 100;

/// A bucket. Its calls block the thread.
pub struct S3Bucket {
    agent: Agent,
    bucket: Bucket,
    keys: Credentials,
    /// The address of the store, for messages.
    store: String,
}

type Ended = AttemptFailure<S3Error>;

impl S3Bucket {
    /// The bucket of the address. Sends no request.
    ///
    /// # Errors
    /// When keys are missing, or the endpoint or the file of authorities is invalid.
    pub fn new(settings: &S3Settings, address: &S3Address) -> Result<Self, S3Error> {
        let wrong = |what: String| S3Error::Settings(what);
        let keys = settings.keys.as_ref().ok_or_else(|| {
            wrong("no keys of the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials".to_owned())
        })?;
        let secret = keys.secret_key.expose_secret();
        let keys = match &keys.session_token {
            Some(token) => Credentials::new_with_token(&keys.access_key, secret, token.expose_secret()),
            None => Credentials::new(&keys.access_key, secret),
        };
        let region = settings.region.as_deref().unwrap_or(DEFAULT_REGION).to_owned();
        let (store, style) = match &settings.endpoint {
            Some(endpoint) => (endpoint.trim_end_matches('/').to_owned(), UrlStyle::Path),
            None => (format!("https://s3.{region}.amazonaws.com"), UrlStyle::VirtualHost),
        };
        let endpoint: Url = store
            .parse()
            .map_err(|error| wrong(format!("the endpoint {store:?} of the object store: {error}")))?;
        // The certificate of AWS has one label before its host.
        let style = if address.bucket().contains('.') { UrlStyle::Path } else { style };
        let bucket = Bucket::new(endpoint, style, address.bucket().to_owned(), region)
            .map_err(|error| wrong(format!("the endpoint {store:?} of the object store: {error}")))?;
        let authorities =
            settings.authorities.as_deref().map_or(Ok(RootCerts::PlatformVerifier), authorities)?;
        let config = Agent::config_builder()
            .tls_config(kubeon_https::tls(authorities).build())
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("kubeon/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .timeout_global(Some(REQUEST_TIMEOUT))
            .build();
        Ok(Self { agent: config.into(), bucket, keys, store })
    }

    /// Writes the file as the object. The object is complete or does not change.
    ///
    /// # Errors
    /// When the file cannot be read or is larger than 5 GiB, or the store does not take it.
    pub fn upload(&self, path: &Path, address: &S3Address) -> Result<(), S3Error> {
        let unreadable = |error| S3Error::File { path: path.to_owned(), error };
        let mut file = File::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        if size > UPLOAD_LIMIT {
            let why = format!("{size} bytes, and S3 takes at most {UPLOAD_LIMIT} at once");
            return Err(unreadable(io::Error::new(io::ErrorKind::FileTooLarge, why)));
        }
        let url = self.bucket.put_object(Some(&self.keys), address.key()).sign(SIGNED_FOR);
        self.repeated(address, || {
            file.rewind().map_err(|error| Ended::Never(unreadable(error)))?;
            let body = SendBody::from_reader(&mut file);
            self.ask(Method::PUT, &url, address, Some((size, body))).map(drop)
        })
    }

    /// Writes the content of the object to the file, which is emptied first.
    ///
    /// # Errors
    /// When there is no such object, the store does not serve it whole, or the file cannot be written.
    pub fn download(&self, address: &S3Address, path: &Path) -> Result<(), S3Error> {
        let unwritable = |error| S3Error::File { path: path.to_owned(), error };
        let mut file =
            File::options().write(true).create(true).truncate(false).open(path).map_err(unwritable)?;
        let url = self.bucket.get_object(Some(&self.keys), address.key()).sign(SIGNED_FOR);
        self.repeated(address, || {
            file.rewind().and_then(|()| file.set_len(0)).map_err(|error| Ended::Never(unwritable(error)))?;
            let answer = self.ask(Method::GET, &url, address, None)?;
            let wanted = length(&answer);
            let found = copy(&mut answer.into_body().into_reader(), &mut file, path)?;
            match wanted {
                Some(wanted) if wanted != found => {
                    Err(Ended::Again(format!("the answer ended after {found} of {wanted} bytes")))
                }
                _ => file.sync_all().map_err(|error| Ended::Never(unwritable(error))),
            }
        })
    }

    /// The objects whose keys begin with that of the address, in the order of their keys.
    ///
    /// # Errors
    /// When the store does not answer, or there are more than 100,000.
    pub fn list(&self, prefix: &S3Address) -> Result<Vec<S3Address>, S3Error> {
        let (mut found, mut next) = (Vec::new(), None::<String>);
        for _ in 0..LISTS {
            let mut action = self.bucket.list_objects_v2(Some(&self.keys));
            action.with_prefix(prefix.key());
            if let Some(token) = &next {
                action.with_continuation_token(token.as_str());
            }
            let url = action.sign(SIGNED_FOR);
            let list = self.repeated(prefix, || {
                let text = document(self.ask(Method::GET, &url, prefix, None)?)?;
                listed_objects(&text, prefix).map_err(Ended::Again)
            })?;
            found.extend(list.0);
            next = list.1;
            if next.is_none() {
                return Ok(found);
            }
        }
        let why = "more objects than are listed; use a prefix with fewer".to_owned();
        Err(S3Error::Server { store: self.store.clone(), address: prefix.to_string(), why })
    }

    /// Removes the object. One that does not exist is removed.
    ///
    /// # Errors
    /// When the store does not remove it.
    pub fn remove(&self, address: &S3Address) -> Result<(), S3Error> {
        let url = self.bucket.delete_object(Some(&self.keys), address.key()).sign(SIGNED_FOR);
        self.repeated(address, || match self.ask(Method::DELETE, &url, address, None) {
            Err(Ended::Never(S3Error::Absent { code, .. })) if code != "NoSuchBucket" => Ok(()),
            other => other.map(drop),
        })
    }

    fn ask(
        &self,
        method: Method,
        url: &Url,
        address: &S3Address,
        content: Option<(u64, SendBody<'_>)>,
    ) -> Result<Response<Body>, Ended> {
        // A signature is in the URL, so that no message may contain it.
        let shown = |error: &dyn std::error::Error| {
            Ended::Again(error.to_string().replace(url.as_str(), "the request"))
        };
        let request = Request::builder().method(method).uri(url.as_str());
        let sent = match content {
            Some((size, body)) => {
                let request = request.header(header::CONTENT_LENGTH, size).body(body);
                self.agent.run(request.map_err(|error| shown(&error))?)
            }
            None => self.agent.run(request.body(()).map_err(|error| shown(&error))?),
        };
        let answer = sent.map_err(|error| shown(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(self.failed(answer, address))
    }

    /// What an answer without success means.
    fn failed(&self, answer: Response<Body>, address: &S3Address) -> Ended {
        let status = answer.status();
        let text = match document(answer) {
            Ok(text) => text,
            Err(ended) => return ended,
        };
        let (code, message) = code_and_message(&text);
        let code = code.unwrap_or_else(|| format!("HTTP {status}"));
        let (store, address) = (self.store.clone(), address.to_string());
        if status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
        {
            return Ended::Again(code);
        }
        if status == StatusCode::NOT_FOUND {
            return Ended::Never(S3Error::Absent { store, address, code });
        }
        let message = message.map(|message| format!(": {message}")).unwrap_or_default();
        Ended::Never(S3Error::Denied { store, address, code, message })
    }

    fn repeated<T>(
        &self,
        address: &S3Address,
        attempt: impl FnMut() -> Result<T, Ended>,
    ) -> Result<T, S3Error> {
        let (store, address) = (self.store.clone(), address.to_string());
        repeated(ATTEMPTS, attempt, |why| S3Error::Server { store, address, why })
    }
}

fn authorities(path: &Path) -> Result<RootCerts, S3Error> {
    let text = fs::read(path).map_err(|error| S3Error::File { path: path.to_owned(), error })?;
    kubeon_https::authorities(&text).map_err(|error| S3Error::Settings(format!("{} {error}", path.display())))
}

/// Copies an answer. An error of the connection can be tried again, one of the file cannot.
fn copy(from: &mut impl io::Read, to: &mut File, path: &Path) -> Result<u64, Ended> {
    let (mut buffer, mut size) = (vec![0; 1 << 16], 0);
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(size),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Ended::Again(error.to_string())),
        };
        let written = to.write_all(&buffer[..count]);
        written.map_err(|error| Ended::Never(S3Error::File { path: path.to_owned(), error }))?;
        size += count as u64;
    }
}

fn document(answer: Response<Body>) -> Result<String, Ended> {
    let mut text = String::new();
    let read = answer.into_body().into_reader().take(DOCUMENT_LIMIT).read_to_string(&mut text);
    read.map_err(|error| Ended::Again(error.to_string()))?;
    Ok(text)
}

fn length(answer: &Response<Body>) -> Option<u64> {
    answer.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The objects in a list of the store, in the bucket of the prefix, and what asks for the next list.
///
/// # Errors
/// When the text is no list; the text of the error is the cause.
pub fn listed_objects(text: &str, prefix: &S3Address) -> Result<(Vec<S3Address>, Option<String>), String> {
    let list = ListObjectsV2::parse_response(text).map_err(|error| error.to_string())?;
    let objects = list.contents.into_iter().map(|object| prefix.with_key(object.key)).collect();
    Ok((objects, list.next_continuation_token))
}

/// The code and the message of an answer with which the store refuses a request.
#[must_use]
pub fn code_and_message(text: &str) -> (Option<String>, Option<String>) {
    (element(text, "Code"), element(text, "Message"))
}

/// The text of the first element with this name in an answer of the store.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0.trim().to_owned())
}
