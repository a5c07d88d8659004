//! What the server itself runs: HTTP requests.
//!
//! Each executor is a handler of one kind of job, given to `Engine::builder(store).handle(…)`. Jobs of other kinds are
//! run by workers elsewhere.

mod http;
mod signature;

pub use http::{HttpExecutor, HttpJob};
pub use signature::{Secret, Secrets};
