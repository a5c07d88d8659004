//! A job in a transaction of one's own, with the real libraries on a real PostgreSQL: it is there if and only if that
//! commits, whatever language sends it, and nobody else waits meanwhile.

#![cfg(all(feature = "tx-tokio-postgres", feature = "tx-sqlx", feature = "tx-diesel"))]
#![expect(clippy::unwrap_used, reason = "in a test, what cannot be had is the failure")]

mod own_transaction {
    mod adapters;
    mod function;
    mod kit;
    mod open;
}
