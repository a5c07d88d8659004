//! Small real programs on Redrive, each in a folder of its own with a page that explains it. `main.rs` runs them, and the
//! tests of the server use them as their users would.

pub mod media_library;
mod stage;

pub use stage::{Pace, Play, Stage};
