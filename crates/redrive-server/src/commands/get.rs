//! `redrive get`: downloads that survive anything.

mod bars;

use std::io::{IsTerminal as _, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use redrive::{Clock, span};
use redrive_server::config::LogFormat;
use redrive_server::download::{
    DEFAULT_MAX_RETRIES, Download, DownloadError, Downloads, FileState, Limits, MAX_RETRIES_LIMIT, Phase,
    Summary, fingerprint,
};
use redrive_server::egress::{Allow, Egress, EgressPolicy};
use redrive_server::{printable, printable_json, telemetry};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::{finish, state};
use crate::out::{self, Colour, Foot};
use crate::trouble::{Done, Exit, Trouble};
use bars::{Bars, size};

/// How often the bars move.
const TICK: Duration = Duration::from_millis(200);
/// How many files are written or synced at the same moment.
const BLOCKING_MAX: usize = 16;
/// No list of URLs is longer.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// What to download, and how.
#[derive(Args)]
pub(crate) struct Get {
    /// What to download
    #[arg(value_name = "URL", required_unless_present = "input")]
    urls: Vec<String>,
    /// Read URLs from this file or, for -, from stdin: one on a line, perhaps with a sha256:… behind it
    #[arg(short = 'i', long, value_name = "FILE|-")]
    input: Option<PathBuf>,
    /// Into this folder
    #[arg(short = 'o', long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// Under this name; for one URL
    #[arg(long, conflicts_with = "input")]
    name: Option<String>,
    /// So many files at once
    #[arg(short = 'j', long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// So many files of one host at once [default: as many as at all]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=256))]
    per_host: Option<u16>,
    /// Try each file again so often, from 0 to 10
    #[arg(short = 'r', long, value_name = "N", default_value_t = DEFAULT_MAX_RETRIES,
          value_parser = value_parser!(u32).range(0..=i64::from(MAX_RETRIES_LIMIT)))]
    max_retries: u32,
    /// All together not faster than so many bytes a second, such as 500k or 2M
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    limit_rate: Option<u64>,
    /// What it must be; for one URL
    #[arg(long, value_name = "sha256:HEX", conflicts_with = "input")]
    checksum: Option<String>,
    /// With this header; may be given several times
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Also from here, beyond the open internet: a network, or a name; may be given several times
    #[arg(long, value_name = "CIDR|NAME")]
    allow_egress: Vec<Allow>,
    /// Give up a file that is larger than this, such as 2G
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_size: Option<u64>,
    /// End a try that takes longer
    #[arg(long, value_name = "DURATION", value_parser = span::parse)]
    max_time: Option<Duration>,
    /// End a try for which next to nothing came for so long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = span::parse)]
    stall: Duration,
    /// Replace files that are there
    #[arg(long)]
    overwrite: bool,
    /// Where unfinished downloads are remembered [default: $XDG_STATE_HOME/redrive]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Log to stderr what happens, at these levels, such as info
    #[arg(long, value_name = "LEVELS")]
    log: Option<String>,
    /// Print a JSON object for everything that happens, one on a line, and a summary at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(given: Get) -> ExitCode {
    #[cfg(target_os = "linux")]
    // Each thread has little in hand, and would fill two megabytes with it. Where it cannot be switched off, it is more.
    rustix::thread::disable_transparent_huge_pages(true).ok();
    // Few threads: each keeps memory of its own, and what they do is short.
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(2).max_blocking_threads(BLOCKING_MAX).enable_all().build();
    let done = runtime
        .map_err(|error| Trouble::new(Exit::Failed, format!("cannot start: {error}")))
        .and_then(|runtime| {
            let done = runtime.block_on(get(given));
            runtime.shutdown_background();
            done
        });
    finish(done)
}

async fn get(given: Get) -> Done {
    let log = given.log.as_deref();
    let _log = log.map(|levels| telemetry::log(levels, LogFormat::Text)).transpose()?;
    let wanted = given.downloads()?;
    let screen = Arc::new(Screen { foot: Foot::default(), json: given.json });
    let downloads = given.open(&wanted, screen.clone()).await?;
    downloads.add(wanted).await?;
    let (shown, show) = (downloads.clone(), screen.clone());
    let painter = (!given.json && std::io::stderr().is_terminal())
        .then(|| tokio::spawn(async move { show.paint(&shown).await }));
    let mut stops = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .map(|kind| signal(kind).map_err(anyhow::Error::from));
    let summary = downloads.run(async move {
        let [interrupt, terminate, hang_up] = &mut stops;
        tokio::select! {
            () = told(interrupt) => {}
            () = told(terminate) => {}
            () = told(hang_up) => {}
        }
    });
    let summary = summary.await?;
    if let Some(painter) = painter {
        painter.abort();
    }
    screen.summary(&summary);
    outcome(&summary, &downloads.files())
}

/// Returns when the signal comes; never where it cannot be heard.
async fn told(signal: &mut anyhow::Result<tokio::signal::unix::Signal>) {
    match signal {
        Ok(signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    }
}

fn outcome(summary: &Summary, files: &[FileState]) -> Done {
    if summary.unfinished > 0 {
        let message = format!("interrupted with {} not complete", files_of(summary.unfinished));
        return Err(
            Trouble::new(Exit::Interrupted, message).hint("the same command goes on where this one was")
        );
    }
    if summary.failed > 0 {
        let message = format!("{} could not be downloaded", files_of(summary.failed));
        return Err(Trouble::new(Exit::Failed, message).hint(way_out(files)));
    }
    Ok(())
}

/// What to do about files that could not be downloaded.
fn way_out(files: &[FileState]) -> &'static str {
    let failed = |wanted: &str| {
        files
            .iter()
            .any(|file| matches!(&file.phase, Phase::Failed { code: Some(code), .. } if code == wanted))
    };
    if failed("SSRF_BLOCKED") {
        "addresses that are not on the open internet are reached with --allow-egress, such as --allow-egress 10.0.0.0/8"
    } else if failed("FILE_EXISTS") {
        "--overwrite replaces files that are there, -o names another folder, --name another name"
    } else {
        "the same command tries again, from where it was"
    }
}

fn files_of(count: u64) -> String {
    format!("{count} {}", if count == 1 { "file" } else { "files" })
}

impl Get {
    /// Everything that is asked for, checked.
    fn downloads(&self) -> Done<Vec<Download>> {
        let given = |url: &String| Wanted { url: url.clone(), checksum: self.checksum.clone(), line: None };
        let mut wanted: Vec<Wanted> = self.urls.iter().map(given).collect();
        if wanted.len() > 1 && (self.checksum.is_some() || self.name.is_some()) {
            let hint = "give one URL; several checksums stand in a file, behind their URLs: -i FILE";
            return Err(Trouble::usage("--checksum and --name are for one URL", hint));
        }
        if let Some(input) = &self.input {
            wanted.extend(listed(&read_list(input)?));
        }
        let mut downloads = Vec::new();
        for one in wanted {
            let mut download = Download::new(&one.url);
            if let Some(checksum) = &one.checksum {
                download = download.checksum(checksum);
            }
            if let Some(name) = &self.name {
                download = download.name(name);
            }
            for (name, value) in &self.headers {
                download = download.header(name, value);
            }
            download.check().map_err(|error| one.refused(&error))?;
            // The same twice is one file.
            if !downloads.contains(&download) {
                downloads.push(download);
            }
        }
        Ok(downloads)
    }

    async fn open(&self, wanted: &[Download], screen: Arc<Screen>) -> Done<Downloads> {
        let cannot = |error: std::io::Error| {
            Trouble::new(Exit::Failed, format!("cannot use the folder {}: {error}", self.output.display()))
        };
        std::fs::create_dir_all(&self.output).map_err(cannot)?;
        let folder = self.output.canonicalize().map_err(cannot)?;
        let parts = [folder.as_os_str().as_bytes()];
        let store = state::store(self.state.as_deref(), "get", &parts, &folder).await?;
        let limits = Limits {
            size_max: self.max_size,
            time_max: self.max_time,
            stall: self.stall,
            overwrite: self.overwrite,
            ..Limits::default()
        };
        let downloads = Downloads::into_folder(&folder)
            .egress(Egress::new(EgressPolicy { allow: self.allow_egress.clone() }))
            .max_retries(self.max_retries)
            .parallel(usize::from(self.jobs))
            .per_host(usize::from(self.per_host.unwrap_or(self.jobs)))
            .bytes_per_second(self.limit_rate)
            // What another command has left in this folder is that one's to finish.
            .queue(&format!("get-{}", fingerprint(wanted)))
            .limits(limits)
            .observer(move |file| screen.happened(file))
            .open(store);
        Ok(downloads.await?)
    }
}

/// `500`, `500k`, `2M`, `1.5G`: in powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size; write a number, perhaps with k, M or G");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1_u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * factor as f64;
    if (1.0..=1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wrong()) }
}

/// `Authorization: Bearer x`, as everybody writes it, or with `=`. No name has either sign in it.
fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once([':', '=']) {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!("{text:?} is no header; write NAME: VALUE")),
    }
}

/// Something to be downloaded, as it was written.
#[derive(Debug, PartialEq)]
struct Wanted {
    url: String,
    checksum: Option<String>,
    /// Where it stands in a list.
    line: Option<usize>,
}

impl Wanted {
    fn refused(&self, error: &DownloadError) -> Trouble {
        let place = self.line.map_or_else(String::new, |line| format!("line {line} of the list: "));
        let hint = match self.url.contains("://") {
            false => format!("did you mean https://{}?", printable(&self.url)),
            true => "redrive get --help shows what can be written".to_owned(),
        };
        Trouble::usage(format!("{place}{error}"), hint)
    }
}

fn read_list(input: &Path) -> Done<String> {
    let mut text = String::new();
    let read = match input.as_os_str() == "-" {
        true => std::io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut text),
        false => {
            std::fs::File::open(input).and_then(|file| file.take(INPUT_BYTES_MAX).read_to_string(&mut text))
        }
    };
    read.map_err(|error| {
        Trouble::new(Exit::Failed, format!("the list {} cannot be read: {error}", input.display()))
    })?;
    Ok(text)
}

/// The URLs of a list, each perhaps with its checksum. Empty lines and those that begin with # say nothing.
fn listed(text: &str) -> Vec<Wanted> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let (url, checksum) = match line.split_once(char::is_whitespace) {
                Some((url, checksum)) => (url, Some(checksum.trim().to_owned())),
                None => (line, None),
            };
            Wanted { url: url.to_owned(), checksum, line: Some(number) }
        })
        .collect()
}

/// What a person or a program sees.
struct Screen {
    foot: Foot,
    json: bool,
}

impl Screen {
    fn happened(&self, file: &FileState) {
        if self.json {
            if let Ok(json) = serde_json::to_string(file) {
                out::answer(&printable_json(&json));
            }
            return;
        }
        let name = printable(&file.name);
        self.foot.above(|| match &file.phase {
            Phase::Completed => {
                out::answer(&format!(
                    "{} {name}  {}",
                    out::coloured("done", Colour::Green),
                    size(file.bytes)
                ));
            }
            Phase::AlreadyThere => out::answer(&format!("{name} is there already")),
            Phase::Failed { why, .. } => out::note(&format!("failed {name}: {why}")),
            Phase::Retrying { at, why } => {
                // To the tenth of a second: that one of them has passed meanwhile is no news.
                let tenths = at.since(Clock::system().now()).as_millis().div_ceil(100);
                let wait = crate::times::rough(Duration::from_millis(
                    u64::try_from(tenths * 100).unwrap_or(u64::MAX),
                ));
                out::note(&format!("{name}: {why}; retry {} in {wait}", file.retries));
            }
            Phase::Waiting | Phase::Receiving => {}
        });
    }

    async fn paint(&self, downloads: &Downloads) {
        let clock = Clock::system();
        let mut bars = Bars::default();
        loop {
            tokio::time::sleep(TICK).await;
            if let Some(width) = Foot::width() {
                self.foot.paint(&bars.lines(&downloads.files(), clock.now(), width));
            }
        }
    }

    fn summary(&self, summary: &Summary) {
        if self.json {
            out::answer(&json!({ "summary": summary }).to_string());
            return;
        }
        let Summary { completed, already_there, failed, retried, unfinished, bytes } = summary;
        let mut parts =
            vec![format!("{completed} completed"), format!("{failed} failed"), format!("{retried} retried")];
        if *already_there > 0 {
            parts.push(format!("{already_there} there already"));
        }
        if *unfinished > 0 {
            parts.push(format!("{unfinished} not complete"));
        }
        self.foot.above(|| out::answer(&format!("{} ({} received)", parts.join(", "), size(*bytes))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, expected) in
            [("1", 1), ("500k", 512_000), ("2M", 2 << 20), ("1.5G", 3 << 29), ("2GiB", 2 << 30)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "k", "1x", "-1", "1e3", "99999999999T", "1.2.3"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_has_a_url_on_a_line_and_perhaps_its_checksum() {
        let list = listed("# today's\nhttps://a/1\n\n  https://a/2   sha256:ab  \r\n");
        let expected = [("https://a/1", None, 2), ("https://a/2", Some("sha256:ab"), 4)];
        let wanted = expected.map(|(url, sum, line)| Wanted {
            url: url.to_owned(),
            checksum: sum.map(str::to_owned),
            line: Some(line),
        });
        assert_eq!(list, wanted);
    }

    #[test]
    fn a_header_is_read_as_curl_takes_it_and_as_a_pair() {
        let is = |text: &str, name: &str, value: &str| {
            assert_eq!(header(text), Ok((name.to_owned(), value.to_owned())), "{text}");
        };
        is("Authorization: Bearer a=b", "Authorization", "Bearer a=b");
        is("x-a=b: c", "x-a", "b: c");
        is("x-empty:", "x-empty", "");
        for wrong in ["", "x", ": b", "=b"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
    }
}
