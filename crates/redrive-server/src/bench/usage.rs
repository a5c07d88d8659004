//! What this process has used, as Linux tells it. Nothing where nobody tells.

use std::time::Duration;

use redrive::millis;

/// Linux reports processor time in hundredths of a second.
const TICK_MS: u64 = 10;

/// Processor time of all threads.
pub(crate) fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may itself contain spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    // utime and stime are the 14th and 15th field of the line, which are the 12th and 13th behind the name.
    let ticks: u64 = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(millis(ticks * TICK_MS))
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
