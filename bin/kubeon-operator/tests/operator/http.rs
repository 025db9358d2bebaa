//! HTTP requests to the operator.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A free port.
pub(crate) fn free_port() -> u16 {
    kubeon_envtest::free_port(Ipv4Addr::LOCALHOST).unwrap()
}

/// The complete response with status line and headers; empty while no program listens.
pub(crate) async fn get(port: u16, path: &str) -> String {
    request(port, path, "HTTP/1.1").await
}

/// The body of the answer. HTTP/1.0 has no chunked encoding.
pub(crate) async fn body(port: u16, path: &str) -> String {
    let answer = request(port, path, "HTTP/1.0").await;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

async fn request(port: u16, path: &str, version: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else { return String::new() };
    let request = format!("GET {path} {version}\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
