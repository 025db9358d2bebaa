//! Connections of clients: how many there are, and whose they are.

use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum_server::accept::Accept;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::add_extension::AddExtension;

use crate::caller::CallerIdentity;
use crate::limits::{CallerLimits, UserPlace};
use crate::request_error::RequestError;
use crate::write_timeout::WriteTimeout;

/// Accepts at most a number of connections; further ones are closed.
#[derive(Clone)]
pub(crate) struct LimitedAcceptor {
    places: Arc<Semaphore>,
    write_timeout: Duration,
}

impl LimitedAcceptor {
    /// The most connections, and how long a client may read nothing of what is sent to it.
    pub(crate) fn new(most: usize, write_timeout: Duration) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), write_timeout }
    }
}

impl<S> Accept<TcpStream, S> for LimitedAcceptor {
    type Stream = WriteTimeout<TcpStream>;
    /// The service of a connection lives as long as the connection, and with it the places that it takes.
    type Service = AddExtension<S, ClientConnection>;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return ready(Err(io::Error::other("there are too many connections")));
        };
        ready(stream.set_nodelay(true).map(|()| {
            let stream = WriteTimeout::new(stream, self.write_timeout);
            (stream, AddExtension::new(service, ClientConnection::new(place)))
        }))
    }
}

/// An open connection, an extension of its requests.
#[derive(Clone)]
pub(crate) struct ClientConnection(Arc<ConnectionPlaces>);

/// The places that a connection takes.
struct ConnectionPlaces {
    _of_all: OwnedSemaphorePermit,
    of_user: Mutex<Option<UserPlace>>,
}

impl ClientConnection {
    fn new(place: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(ConnectionPlaces { _of_all: place, of_user: Mutex::new(None) }))
    }

    /// Makes it a connection of the caller, until it ends or another caller uses it. It has one request at a time, so a user has no
    /// more requests, streams and unread answers than connections.
    ///
    /// # Errors
    /// When the caller has the most connections.
    pub(crate) fn assign(&self, limits: &CallerLimits, caller: &CallerIdentity) -> Result<(), RequestError> {
        let mut of_user = self.0.of_user.lock();
        if of_user.as_ref().is_some_and(|place| place.is_of(caller)) {
            return Ok(());
        }
        *of_user = None;
        *of_user = Some(limits.connection(caller)?);
        Ok(())
    }
}
