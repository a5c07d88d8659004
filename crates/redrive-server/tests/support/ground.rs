//! A server and somebody who calls it, with the calls that every test makes.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::served::Served;

/// A server on an empty store.
pub(crate) struct Ground {
    pub(crate) client: Client,
    _served: Served,
}

impl Ground {
    pub(crate) async fn new() -> Ground {
        Ground::with("").await
    }

    /// With these settings.
    pub(crate) async fn with(settings: &str) -> Ground {
        Ground::of(Served::with(settings).await)
    }

    /// On this server.
    pub(crate) fn of(served: Served) -> Ground {
        let client = Client { address: served.address, token: None };
        Ground { client, _served: served }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.client.get(&api(path)).await.data()
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.client.post(&api(path), &body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.client.ask("DELETE", &api(path), &[], Bytes::new()).await
    }

    /// Puts a job in, and gives its id.
    pub(crate) async fn enqueue(&self, job: Value) -> String {
        id(&self.post("/jobs", job).await.data())
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.get(&format!("/jobs/{id}")).await
    }

    pub(crate) async fn state(&self, id: &str) -> String {
        self.job(id).await["state"].as_str().unwrap().to_owned()
    }

    /// The lease of the one job of this kind that is due, or will be within the wait.
    pub(crate) async fn lease(&self, kind: &str) -> String {
        let asked = json!({ "kinds": [kind], "wait": "10s" });
        let leased = self.post("/workers/lease", asked).await.data();
        leased["jobs"][0]["lease"].as_str().unwrap_or_else(|| panic!("no {kind} job: {leased}")).to_owned()
    }

    /// How many jobs of this kind can be leased now.
    pub(crate) async fn due(&self, kind: &str) -> usize {
        let leased = self.post("/workers/lease", json!({ "kinds": [kind], "limit": 1000 })).await.data();
        leased["jobs"].as_array().unwrap().len()
    }

    /// Reports what became of a leased job.
    pub(crate) async fn report(&self, lease: &str, what: &str, body: Value) -> Answer {
        self.post(&format!("/leases/{lease}/{what}"), body).await
    }

    /// Puts a job in that nobody could finish, and gives its id when it is dead.
    pub(crate) async fn dead(&self, kind: &str, message: &str) -> String {
        let id = self.enqueue(json!({ "kind": kind })).await;
        let lease = self.lease(kind).await;
        let failed = json!({ "class": "permanent", "message": message });
        assert_eq!(self.report(&lease, "fail", failed).await.data()["state"], "dead");
        id
    }
}

/// A path under the API.
pub(crate) fn api(path: &str) -> String {
    format!("/api/v1{path}")
}

pub(crate) fn id(data: &Value) -> String {
    data["id"].as_str().unwrap_or_else(|| panic!("{data}")).to_owned()
}

/// The ids of a list's items.
pub(crate) fn ids(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(id).collect()
}

/// A time of the API in milliseconds.
pub(crate) fn millis(time: &Value) -> i64 {
    let time = time.as_str().unwrap_or_else(|| panic!("{time} is no time"));
    time.parse::<redrive::Timestamp>().unwrap().as_millis()
}
