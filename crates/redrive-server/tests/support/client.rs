//! A caller of the API: one connection a request, and answers that are looked at before they are used.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// How long anything may take before a test has failed: far longer than it does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What must happen soon.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// What is inside the envelope of a success.
    pub(crate) fn data(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        let mut json = self.json();
        assert_eq!(json["success"], true, "{json}");
        assert_eq!(json.as_object().map(serde_json::Map::len), Some(2), "{json}");
        json["data"].take()
    }

    /// Status and code of a refusal, which has a message and a hint, and is nobody's bug.
    pub(crate) fn refused(&self) -> (u16, String) {
        assert!((400..500).contains(&self.status), "{self:?}");
        let json = self.json();
        assert_eq!(json["success"], false, "{json}");
        let said = |name: &str| json["error"][name].as_str().filter(|text| !text.is_empty());
        assert!(said("message").is_some() && said("hint").is_some(), "{json}");
        (self.status, said("code").unwrap_or_else(|| panic!("{json}")).to_owned())
    }

    fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json", "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// Somebody who calls.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// Sent with every request.
    pub(crate) token: Option<String>,
}

impl Client {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        let headers = [("content-type", "application/json")];
        self.ask("POST", path, &headers, body.to_string().into()).await
    }

    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Answer {
        within(self.try_ask(method, path, headers, body)).await.unwrap()
    }

    /// Asks a server that may be killed meanwhile.
    pub(crate) async fn try_ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let (head, body) = self.send(method, path, headers, body).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// The answer before its body is read: streams have no end.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<http::Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
        let socket = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        tokio::spawn(connection);
        let mut request =
            Request::builder().method(method).uri(path).header("host", self.address.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        Ok(sender.send_request(request.body(Full::new(body))?).await?)
    }
}
