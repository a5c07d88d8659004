//! What the server itself runs: HTTP requests, and commands an operator has allowed by name.
//!
//! Each executor is a handler of one kind of job, given to `Engine::builder(store).handle(…)`. Jobs of other kinds are
//! run by workers elsewhere.

mod command;
mod http;
mod signature;

pub use command::{CommandEntry, CommandExecutor, CommandJob};
pub use http::{HttpExecutor, HttpJob, ask};
pub(crate) use http::{refused, unanswered};
pub use signature::{Secret, Secrets};
