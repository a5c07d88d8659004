//! A listener to the stream of events.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use crate::client::{Client, within};

/// One event.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) event: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

pub(crate) struct Stream {
    body: Incoming,
    text: String,
}

impl Stream {
    pub(crate) async fn listen(client: &Client, last: Option<&str>) -> Stream {
        let headers: Vec<(&str, &str)> = last.map(|last| ("last-event-id", last)).into_iter().collect();
        let response = within(client.send("GET", "/api/v1/events", &headers, Bytes::new())).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { body: response.into_body(), text: String::new() }
    }

    pub(crate) async fn next(&mut self) -> Told {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field =
                    |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
                let told = field("data:").map(|data| Told {
                    event: field("event:").unwrap().to_owned(),
                    id: field("id:").map(str::to_owned),
                    data: serde_json::from_str(data).unwrap(),
                });
                self.text = rest.to_owned();
                match told {
                    Some(told) => return told,
                    // A heartbeat.
                    None => continue,
                }
            }
            let frame = within(self.body.frame()).await.expect("the stream has ended").unwrap();
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// The next one with this name.
    pub(crate) async fn next_of(&mut self, event: &str) -> Told {
        let [told] = self.next_of_each([event]).await;
        told
    }

    /// The next one with each of these names, whichever comes first. In time: a stream that goes on without them is no more
    /// than a stream that has stopped.
    pub(crate) async fn next_of_each<const N: usize>(&mut self, events: [&str; N]) -> [Told; N] {
        let mut found = [const { None }; N];
        within(async {
            while found.iter().any(Option::is_none) {
                let told = self.next().await;
                let wanted =
                    events.iter().zip(&mut found).find(|(event, at)| **event == told.event && at.is_none());
                if let Some((_, at)) = wanted {
                    *at = Some(told);
                }
            }
        })
        .await;
        found.map(|told| told.expect("all of them came"))
    }
}
