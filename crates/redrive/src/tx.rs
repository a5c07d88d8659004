//! Enqueueing in a transaction of your own: your data and the job about it are there together, or not at all.
//!
//! One module for each library that can hold the transaction, each with one function `enqueue`. The job is made by
//! [`Engine::admit`](crate::Engine::admit), which checks it and stores nothing. A refusal (its key is taken, its queue is
//! full) leaves your transaction as it was. Whoever has no Rust calls the SQL function `redrive.enqueue`.

#[cfg(feature = "tx-diesel")]
pub mod diesel;
#[cfg(feature = "sqlite")]
pub mod rusqlite;
#[cfg(feature = "tx-sqlx")]
pub mod sqlx;
#[cfg(feature = "tx-tokio-postgres")]
pub mod tokio_postgres;
