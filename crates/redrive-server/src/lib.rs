//! The server around the engine: the HTTP API, the executors that call other people's services, and the door that
//! decides who comes in. The binary `redrive` is a command line in front of it.

pub mod api;
#[cfg(feature = "dashboard")]
mod assets;
pub mod config;
pub mod demo;
pub mod door;
pub mod download;
pub mod egress;
pub mod executor;
pub mod health;
pub mod notices;
mod pem;
mod printable;
mod reading;
mod redact;
pub mod remote;
pub mod serve;
pub mod simulate;
mod socket;
pub mod telemetry;
pub mod tokens;

pub use download::{DEFAULT_MAX_RETRIES, Download, DownloadError, Downloads};
pub use printable::{printable, printable_json};
