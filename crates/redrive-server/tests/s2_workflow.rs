//! What the document of the workflow engine asks for (requirements S2-01 to S2-49), shown on whole servers. Each test
//! names the numbers it shows; docs/requirements.md has where the others are shown.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be had is the failure")]

#[expect(dead_code, reason = "other tests use the rest of it")]
#[path = "support/client.rs"]
mod client;
#[expect(dead_code, reason = "other tests use the rest of it")]
#[path = "support/ground.rs"]
mod ground;
#[path = "s2_workflow/retries.rs"]
mod retries;
#[path = "support/served.rs"]
mod served;
#[expect(dead_code, clippy::disallowed_methods, reason = "http_executor.rs uses the rest of it")]
#[path = "support/target.rs"]
mod target;
