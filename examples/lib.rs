//! Small real programs on Redrive, each in a folder of its own with a page that explains it. `main.rs` runs them, and the
//! tests of the server use them as their users would.

pub mod article_feed;
pub mod media_library;
pub mod offline_sync;
mod stage;

pub use stage::{Pace, Play, Stage};
