//! Logs and metrics: set up once, by whoever runs the server. One line per event, whatever is in it.

mod scribe;

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::LogFormat;
use crate::printable::{printable, printable_json};

pub use self::scribe::Scribe;

/// Where the buckets of durations end, in seconds: from a fast answer to a slow job.
const SECONDS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0];

/// Begins to log to stderr: these levels, in this format. Panics are logged as one line too. All of it is written when
/// what this returns is dropped.
///
/// # Errors
///
/// If the levels cannot be read, or something else logs already.
pub fn log(levels: &str, format: LogFormat) -> anyhow::Result<Scribe> {
    let scribe = Scribe::start(io::stderr())?;
    let pen = scribe.pen();
    tracing::subscriber::set_global_default(subscriber(levels, format, move || pen.clone())?)?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload().downcast_ref::<&str>().copied();
        let said =
            text.or(panic.payload().downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)");
        tracing::error!(place, said, "Panic");
    }));
    Ok(scribe)
}

/// What logs these levels, in this format, to this writer.
///
/// # Errors
///
/// If the levels cannot be read.
pub fn subscriber<W>(
    levels: &str,
    format: LogFormat,
    to: W,
) -> anyhow::Result<Box<dyn Subscriber + Send + Sync>>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder().parse(levels)?;
    // No colours: a line is the same bytes wherever it is read.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let to = OneLine { to: Arc::new(to), format };
    Ok(match format {
        LogFormat::Text => Box::new(log.with_writer(to).finish()),
        LogFormat::Json => Box::new(log.json().flatten_event(true).with_writer(to).finish()),
    })
}

/// Makes every event one line of harmless characters. The formatter writes an event in one go.
struct OneLine<W> {
    to: Arc<W>,
    format: LogFormat,
}

impl<'w, W: MakeWriter<'w> + 'w> MakeWriter<'w> for OneLine<W> {
    type Writer = OneLineWriter<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        OneLineWriter { to: self.to.make_writer(), format: self.format }
    }
}

struct OneLineWriter<W> {
    to: W,
    format: LogFormat,
}

impl<W: Write> Write for OneLineWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let event = text.strip_suffix('\n').unwrap_or(&text);
        let line = match self.format {
            LogFormat::Text => printable(event),
            LogFormat::Json => printable_json(event),
        };
        match line {
            // It was harmless as it was, which is the rule.
            Cow::Borrowed(line) if line.len() + 1 == bytes.len() => self.to.write_all(bytes)?,
            line => self.to.write_all(format!("{line}\n").as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// What is counted, as Prometheus reads it.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
}

impl Metrics {
    /// Begins to count, for the whole process. To be called before the engine is built, which looks its counters up.
    ///
    /// # Errors
    ///
    /// If something else counts already.
    pub fn install() -> Result<Metrics, BuildError> {
        let handle = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
            .install_recorder()?;
        Ok(Metrics { handle })
    }

    /// The page `/metrics`.
    pub fn render(&self) -> String {
        self.gather();
        self.handle.render()
    }

    /// Adds up what was recorded since. Every duration is kept by itself until then, so that it has to be done now and
    /// then even if nobody asks for the page.
    pub fn gather(&self) {
        self.handle.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat) -> String {
        let page = Page::default();
        let to = page.clone();
        let subscriber = subscriber("info,quiet=off", format, move || to.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            for text in
                ["plain", "two\nlines", "\u{1b}]8;;http://evil\u{7}", "\u{2028}\u{202e}", "\r\u{9b}31m"]
            {
                tracing::info!(text, %text, debug = ?text, "said {text}");
            }
            tracing::debug!("not asked for");
            tracing::info!(target: "quiet", "not asked for");
        });
        String::from_utf8(page.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn whatever_is_logged_is_one_line_of_harmless_characters() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let page = logged(format);
            assert_eq!(page.lines().count(), 5, "{page}");
            assert_eq!(page.replace('\n', ""), printable(&page.replace('\n', "")), "{page}");
        }
    }

    #[test]
    fn json_lines_are_json_and_say_what_was_said() {
        let page = logged(LogFormat::Json);
        let texts: Vec<String> = page
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["message"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        assert_eq!(texts[0], "said plain");
        assert_eq!(texts.len(), 5);
    }

    #[test]
    fn levels_that_cannot_be_read_are_refused() {
        assert!(subscriber("redrive=loud", LogFormat::Text, io::sink).is_err());
    }

    #[test]
    fn durations_have_buckets_and_what_is_counted_is_rendered() {
        let metrics = Metrics::install().unwrap();
        metrics::counter!("redrive_test_total").increment(3);
        metrics::histogram!("redrive_test_seconds").record(0.3);
        let page = metrics.render();
        assert!(page.contains("redrive_test_total 3"), "{page}");
        assert!(page.contains("redrive_test_seconds_bucket{le=\"0.5\"} 1"), "{page}");
        assert!(Metrics::install().is_err());
    }
}
