//! What this process has used, as Linux tells it. Nothing where nobody tells.

use std::time::Duration;

use redrive::millis;

/// Linux reports processor time in hundredths of a second.
const TICK_MS: u64 = 10;

/// Processor time of all threads.
pub(crate) fn processor_time() -> Option<Duration> {
    Some(ticks(&fields("self")?[UTIME..=STIME]))
}

/// Processor time of a process, of its children, and of those it had before.
pub(crate) fn processor_time_of_family(parent: u32) -> Option<Duration> {
    let own = ticks(&fields(&parent.to_string())?[UTIME..=CSTIME]);
    let others = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let fields = fields(entry.file_name().to_str()?)?;
        (fields[PPID] == parent.to_string()).then(|| ticks(&fields[UTIME..=STIME]))
    });
    Some(own + others.sum())
}

/// The process that started another.
pub(crate) fn parent_of(process: u32) -> Option<u32> {
    fields(&process.to_string())?[PPID].parse().ok()
}

/// Whether a process is there, and runs this program.
pub(crate) fn is_named(process: u32, program: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim() == program)
}

/// What `/proc/ID/stat` says behind the name of the program, which is in parentheses and may itself contain spaces.
fn fields(process: &str) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<String> = fields.split(' ').map(str::to_owned).collect();
    (fields.len() > CSTIME).then_some(fields)
}

/// Where among them: who started it; its own time, in programs and in the kernel, up to that of its ended children.
const PPID: usize = 1;
const UTIME: usize = 11;
const STIME: usize = 12;
const CSTIME: usize = 14;

fn ticks(fields: &[String]) -> Duration {
    millis(fields.iter().filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * TICK_MS)
}

/// Memory that is resident now, in MB.
pub(crate) fn resident_mb() -> Option<f64> {
    status_mb("VmRSS:")
}

/// The most memory that ever was resident, in MB.
pub(crate) fn resident_peak_mb() -> Option<f64> {
    status_mb("VmHWM:")
}

fn status_mb(name: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024.0)
}
