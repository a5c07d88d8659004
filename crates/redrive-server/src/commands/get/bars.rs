//! The lines that move while downloads do: one for each file under way and one for all. Pure: states and time in, text
//! out.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::{JobId, Timestamp};
use redrive_server::download::{FileState, Phase};
use redrive_server::printable;
use unicode_width::UnicodeWidthStr as _;

use crate::table::cut;
use crate::times::rough;

/// No more files than this are shown; the last line counts them all.
const SHOWN_MAX: usize = 12;
/// The length of a bar.
const BAR_WIDTH: usize = 20;
/// How much of the last measure a rate keeps: it follows within a few seconds and does not flicker.
const KEPT: f64 = 0.9;

/// What is remembered from one painting to the next.
#[derive(Default)]
pub(super) struct Bars {
    last: Option<Timestamp>,
    files: BTreeMap<JobId, Rate>,
    all: Rate,
}

/// How fast something grows.
#[derive(Clone, Copy, Default)]
struct Rate {
    bytes: Option<u64>,
    per_second: f64,
}

impl Rate {
    fn at(&mut self, bytes: u64, elapsed: Duration) -> f64 {
        if let Some(before) = self.bytes.filter(|_| !elapsed.is_zero()) {
            let now = bytes.saturating_sub(before) as f64 / elapsed.as_secs_f64();
            self.per_second =
                if self.per_second == 0.0 { now } else { self.per_second * KEPT + now * (1.0 - KEPT) };
        }
        self.bytes = Some(bytes);
        self.per_second
    }
}

impl Bars {
    /// The lines, each within this width.
    pub(super) fn lines(&mut self, files: &[FileState], now: Timestamp, width: usize) -> Vec<String> {
        let elapsed = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.last = Some(now);
        let mut lines = Vec::new();
        for file in files {
            let rate = self.files.entry(file.id).or_default().at(file.bytes, elapsed);
            if lines.len() < SHOWN_MAX
                && let Some(line) = line_of(file, rate, now)
            {
                lines.push(line);
            }
        }
        let arrived: u64 = files.iter().map(|file| file.bytes).sum();
        let rate = self.all.at(arrived, elapsed);
        lines.push(line_of_all(files, rate));
        // One column stays free: a line that fills its last one may break.
        lines.iter().map(|line| cut(line, width.saturating_sub(1))).collect()
    }
}

fn line_of(file: &FileState, rate: f64, now: Timestamp) -> Option<String> {
    let name = padded(&cut(&printable(&file.name), 28), 28);
    match &file.phase {
        Phase::Receiving => {
            let amount = match file.total {
                Some(total) => format!("{} {}/{}", bar(file.bytes, total), size(file.bytes), size(total)),
                None => size(file.bytes),
            };
            let left = file.total.map(|total| total.saturating_sub(file.bytes));
            Some(format!("{name} {amount}  {}/s{}", size(rate as u64), eta(left, rate)))
        }
        Phase::Retrying { at, why } => {
            let when = if *at > now { format!("in {}", rough(at.since(now))) } else { "soon".to_owned() };
            Some(format!("{name} retry {} {when}: {}", file.retries, printable(why)))
        }
        _ => None,
    }
}

fn line_of_all(files: &[FileState], rate: f64) -> String {
    let finished = files.iter().filter(|file| file.phase.is_final()).count();
    let retries: u32 = files.iter().map(|file| file.retries).sum();
    let arrived: u64 = files.iter().map(|file| file.bytes).sum();
    // Of files that have not begun nobody knows the length, so there is no end in sight before all have.
    let left: Option<u64> = files
        .iter()
        .filter(|file| !file.phase.is_final())
        .map(|file| file.total.map(|total| total.saturating_sub(file.bytes)))
        .sum();
    let retried = if retries > 0 { format!(", {retries} retried") } else { String::new() };
    let (all, arrived, speed) = (files.len(), size(arrived), size(rate as u64));
    format!("{finished}/{all} files{retried}  {arrived}  {speed}/s{}", eta(left, rate))
}

fn bar(bytes: u64, total: u64) -> String {
    let share = if total == 0 { 1.0 } else { (bytes as f64 / total as f64).min(1.0) };
    let full = (share * BAR_WIDTH as f64) as usize;
    format!("[{}{}] {:3.0}%", "#".repeat(full), "-".repeat(BAR_WIDTH - full), (share * 100.0).floor())
}

fn eta(left: Option<u64>, rate: f64) -> String {
    match left {
        Some(left) if rate >= 1.0 => {
            format!("  {} left", rough(Duration::from_secs_f64((left as f64 / rate).ceil().max(1.0))))
        }
        _ => String::new(),
    }
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// `1.4 MB`, in powers of 1024.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1000.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{amount:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive::{Rng, secs};

    fn file(n: u64, bytes: u64, total: Option<u64>, phase: Phase) -> FileState {
        let id = JobId::new(Timestamp::EPOCH, 0, &mut Rng::seeded(n));
        let retries = u32::from(matches!(phase, Phase::Retrying { .. }));
        FileState {
            id,
            url: format!("https://a/{n}"),
            name: format!("file-{n}"),
            bytes,
            total,
            retries,
            phase,
        }
    }

    #[test]
    fn rate_time_left_and_countdown_are_shown_for_each_and_for_all() {
        let mut bars = Bars::default();
        let now = Timestamp::from_millis(1_000_000);
        let states = |bytes| {
            vec![
                file(1, bytes, Some(10 << 20), Phase::Receiving),
                file(2, 5, Some(5), Phase::Completed),
                file(
                    3,
                    0,
                    Some(10 << 20),
                    Phase::Retrying { at: now + secs(5), why: "answered 503\n".to_owned() },
                ),
            ]
        };
        bars.lines(&states(0), now, 200);
        let lines = bars.lines(&states(5 << 20), now + secs(1), 200);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[0].contains("[##########----------]  50% 5.0 MB/10.0 MB  5.0 MB/s  1s left"),
            "{}",
            lines[0]
        );
        assert!(lines[1].contains("retry 1 in 4s: answered 503\\n"), "{}", lines[1]);
        assert_eq!(lines[2], "1/3 files, 1 retried  5.0 MB  5.0 MB/s  3s left");
        // It may still wait for a place.
        let lines = bars.lines(&states(6 << 20), now + secs(5), 200);
        assert!(lines[1].contains("retry 1 soon: answered 503"), "{}", lines[1]);
    }

    #[test]
    fn lines_fit_and_are_few() {
        let many: Vec<FileState> = (0..100).map(|n| file(n, 1, None, Phase::Receiving)).collect();
        let lines = Bars::default().lines(&many, Timestamp::EPOCH, 30);
        assert_eq!(lines.len(), SHOWN_MAX + 1);
        assert!(lines.iter().all(|line| line.width() < 30));
    }

    #[test]
    fn sizes_have_three_digits_and_a_unit() {
        for (bytes, text) in
            [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (1 << 20, "1.0 MB"), (u64::MAX, "16777216.0 TB")]
        {
            assert_eq!(size(bytes), text);
        }
    }
}
