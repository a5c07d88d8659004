//! What the documents ask for whose users write programs: a media library, an application that goes offline, an article
//! feed. Each is shown on the program in `examples/` that was written for it. Each test names the numbers it shows.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be had is the failure")]

#[expect(dead_code, reason = "other tests look at headers and refusals")]
#[path = "support/client.rs"]
mod client;
#[path = "products/requirements.rs"]
mod requirements;
#[path = "products/s0_media.rs"]
mod s0_media;
#[path = "products/s3_offline.rs"]
mod s3_offline;
#[path = "products/s4_feed.rs"]
mod s4_feed;
#[expect(dead_code, reason = "other tests come back to where they were")]
#[path = "support/stream.rs"]
mod stream;
