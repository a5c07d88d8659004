//! What a program writes: all of it is taken, so that it never waits for us, and the end of it is kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

use crate::redact::redact;

/// How much of each stream is held.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// How much of each is kept with the job: a job's output has 64 KiB, and a byte may become six in JSON.
const KEPT_BYTES_MAX: usize = 5 * 1024;

/// A stream that is being read.
pub(super) struct Capture {
    held: Arc<Mutex<Held>>,
    reader: JoinHandle<()>,
}

/// The end of what came.
#[derive(Clone, Default)]
pub(super) struct Held {
    bytes: VecDeque<u8>,
    cut: bool,
}

impl Capture {
    pub(super) fn of(stream: Option<impl AsyncRead + Unpin + Send + 'static>) -> Capture {
        let held = Arc::new(Mutex::new(Held::default()));
        let sink = held.clone();
        let reader = tokio::spawn(async move {
            let Some(mut stream) = stream else { return };
            let mut buffer = vec![0; 16 * 1024];
            // A pipe that breaks has ended.
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..count]);
            }
        });
        Capture { held, reader }
    }

    /// What came until the stream ended, or until now if it does not end soon.
    pub(super) async fn finish(mut self, wait: Duration) -> Held {
        let _ = tokio::time::timeout(wait, &mut self.reader).await;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Held {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let excess = self.bytes.len().saturating_sub(HELD_BYTES_MAX);
        self.bytes.drain(..excess);
        self.cut |= excess > 0;
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.iter().copied().collect::<Vec<u8>>()).into_owned()
    }

    /// As it is kept with the job: text, or the end of a text that was longer.
    pub(super) fn kept(&self) -> Value {
        let text = self.text();
        let excess = text.len().saturating_sub(KEPT_BYTES_MAX);
        let from = (excess..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(excess);
        match self.cut || from > 0 {
            true => json!({"truncated": true, "end": &text[from..]}),
            false => text.into(),
        }
    }

    /// The last that was said, on one line and without secrets.
    pub(super) fn last(&self, chars: usize) -> String {
        let text = self.text();
        // Before anything is cut off: a secret is known by what stands before it.
        let text = redact(&text);
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let skip = line.chars().count().saturating_sub(chars);
        line.chars().skip(skip).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_text_is_kept() {
        let mut held = Held::default();
        held.push(b"short");
        assert_eq!((held.kept(), held.last(3)), (json!("short"), "ort".to_owned()));
        for n in 0..100_000 {
            held.push(format!("line {n} ü\n").as_bytes());
        }
        assert_eq!(held.bytes.len(), HELD_BYTES_MAX);
        assert_eq!(held.kept()["truncated"], true);
        assert!(held.kept()["end"].as_str().unwrap().ends_with("line 99999 ü\n"));
        assert!(held.last(14).ends_with("line 99999 ü"));
    }

    #[test]
    fn the_last_words_hold_no_secret_wherever_they_begin() {
        let mut held = Held::default();
        held.push(b"cannot log in with password=hunter2hunter2 to db\n");
        let last = "cannot log in with password=*** to db";
        for chars in 1..=last.len() {
            assert_eq!(held.last(chars), last[last.len() - chars..]);
        }
    }

    #[test]
    fn the_worst_text_fits_into_the_output_of_a_job() {
        let mut held = Held::default();
        held.push(&[1; HELD_BYTES_MAX]);
        let output = json!({"exitCode": 0, "stdout": held.kept(), "stderr": held.kept()});
        assert!(output.to_string().len() <= redrive::OUTPUT_BYTES_MAX);
    }
}
