//! What the database server does meanwhile, if it is on this machine.

use std::time::Duration;

use anyhow::Result;
use tokio_postgres::{Client, NoTls};

use super::usage;
use crate::cli::StoreUrl;

/// A server, seen from a session of its own.
pub(crate) struct Database {
    client: Client,
    /// The process whose children are the sessions.
    server: u32,
}

impl Database {
    /// None for a file, and for a server on another machine.
    pub(crate) async fn behind(store: &StoreUrl) -> Result<Option<Database>> {
        let StoreUrl::Postgres(url) = store else { return Ok(None) };
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let session: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
        let server = u32::try_from(session).ok().filter(|id| usage::is_named(*id, "postgres"));
        Ok(server.and_then(usage::parent_of).map(|server| Database { client, server }))
    }

    /// Processor time of all its sessions and helpers, also of those that have ended.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        usage::processor_time_of_family(self.server)
    }

    /// Bytes of its log, ever.
    pub(crate) async fn written(&self) -> Result<i64> {
        let written = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
        Ok(self.client.query_one(written, &[]).await?.get(0))
    }
}
