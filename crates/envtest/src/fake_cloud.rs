//! The API of a cloud provider on loopback: it checks the signature of every request and keeps route tables in memory.

mod aliyun;
mod signed;
mod tables;
mod tencent;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;

use crate::error::EnvtestError;
use signed::SignedRequest;
pub use tables::CloudRoute;
use tables::Tables;

/// The most bytes of a request that are read.
const REQUEST_LIMIT: usize = 1 << 20;

type Shared = Arc<Mutex<Tables>>;

/// A running API. It listens until the process ends.
#[derive(Debug)]
pub struct FakeCloud {
    address: SocketAddr,
    tables: Shared,
}

impl FakeCloud {
    /// The identifier of the key that may ask.
    pub const SECRET_ID: &str = signed::SECRET_ID;
    /// The key that signs.
    pub const SECRET_KEY: &str = signed::SECRET_KEY;

    /// Serves these route tables, which are empty.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start(tables: &[&str]) -> Result<Self, EnvtestError> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(EnvtestError::Port)?;
        listener.set_nonblocking(true).map_err(EnvtestError::Port)?;
        let address = listener.local_addr().map_err(EnvtestError::Port)?;
        let shared = Shared::default();
        shared.lock().tables = tables.iter().map(|table| ((*table).to_owned(), BTreeMap::new())).collect();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(EnvtestError::Port)?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                axum::serve(listener, router).await
            })
        });
        Ok(Self { address, tables: shared })
    }

    /// The URL of the API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The routes of a table, in the order in which they were made.
    #[must_use]
    pub fn routes(&self, table: &str) -> Vec<CloudRoute> {
        self.tables
            .lock()
            .tables
            .get(table)
            .map(|routes| routes.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Adds a route of somebody else.
    pub fn insert(&self, table: &str, route: CloudRoute) {
        self.tables.lock().insert(table, route);
    }

    /// Lets the next request fail with this code.
    pub fn fail_next(&self, code: &'static str) {
        self.tables.lock().failures.push_back(code);
    }

    /// The actions that were asked for so far.
    #[must_use]
    pub fn actions(&self) -> Vec<String> {
        self.tables.lock().actions.clone()
    }
}

async fn answer(State(tables): State<Shared>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = match axum::body::to_bytes(body, REQUEST_LIMIT).await {
        Ok(body) => body,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    serve(&tables, &SignedRequest { head: &head, body: &body })
}

fn serve(tables: &Shared, request: &SignedRequest<'_>) -> Response {
    let mut tables = tables.lock();
    let is_tencent = request.header("x-tc-action").is_some();
    let action = request.header("x-tc-action").or_else(|| request.header("x-acs-action")).unwrap_or_default();
    let signature = if is_tencent { request.check_tencent() } else { request.check_aliyun() }
        .map_err(|why| ("SignatureDoesNotMatch", why));
    let result = signature.and_then(|()| {
        tables.actions.push(action.to_owned());
        if let Some(code) = tables.failures.pop_front() {
            return Err((code, "as the test asked".to_owned()));
        }
        if is_tencent {
            tencent::act(&mut tables, action, request.body)
        } else {
            aliyun::act(&mut tables, action, request)
        }
    });
    if is_tencent { tencent::answer(result) } else { aliyun::answer(result) }
}
