//! Real parts for tests against PostgreSQL: nothing here is a mock.
//!
//! [`database`] is an empty database for one test, on a server that is started once and shared. A test that kills its
//! server takes a [`Cluster`] of its own. [`PgBouncer`] and [`Proxy`] stand before either. For our own tests; not published.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let database = redrive_testbed::database().await;
//! let client = redrive_testbed::connect(database.url()).await.expect("the server is running");
//! client.batch_execute("CREATE TABLE t (id int)").await.expect("the database is empty");
//! # }
//! ```
//!
//! What goes wrong here is the fault of the machine, not of the code under test, so everything panics with what to do
//! instead of returning errors.
//!
//! Nothing outlives the process that started it, however that process ends: see `folder.rs`.

#[cfg(feature = "async")]
mod address;
#[cfg(feature = "async")]
mod bouncer;
mod cluster;
#[cfg(feature = "async")]
mod database;
mod folder;
#[cfg(feature = "async")]
mod proxy;
#[cfg(feature = "async")]
mod wire;

#[cfg(feature = "async")]
pub use bouncer::PgBouncer;
pub use cluster::Cluster;
#[cfg(feature = "async")]
pub use database::{Database, connect, database};
#[cfg(feature = "async")]
pub use proxy::{Counts, Proxy};
/// What [`connect`] returns is this crate's.
#[cfg(feature = "async")]
pub use tokio_postgres;

/// The variable that names a running server, as the URL of a user who may create databases.
pub const SERVER_VARIABLE: &str = "REDRIVE_TEST_POSTGRES";
