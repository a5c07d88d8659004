//! Load over time, in characters: what each policy asked of the destination, and when that was down.

use std::fmt::Write as _;

use redrive::span;

use super::course::Course;
use super::scenario::Scenario;

/// Columns of a chart.
const COLUMNS: usize = 72;
/// Lines of a chart: the upper one is what collapses the destination.
const ROWS: usize = 4;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One chart for each policy, on the same axes. The outage is marked below them.
pub fn chart(scenario: &Scenario, courses: &[Course]) -> String {
    let seconds = span_of(scenario, courses);
    let top = top_of(scenario);
    let mut text = format!(
        "calls per second over {}, the highest of each column; ▲ is more than {:.0}/s, where everything fails\n",
        span::format(redrive::secs(seconds as u64)),
        top
    );
    for course in courses {
        let columns = columns_of(&course.loads, seconds, COLUMNS);
        let _ = write!(text, "\n{}\n", course.name);
        for row in (0..ROWS).rev() {
            let label = if row + 1 == ROWS { format!("{top:.0}") } else { String::new() };
            let line: String = columns.iter().map(|load| cell(*load, top, row)).collect();
            let _ = writeln!(text, "{label:>7} │{}", line.trim_end());
        }
    }
    let marks: String =
        (0..COLUMNS).map(|column| if is_down(scenario, column, seconds) { '▒' } else { '─' }).collect();
    let _ = writeln!(text, "        └{marks}");
    if !scenario.outage.is_empty() {
        text += "         ▒ nothing is there\n";
    }
    text
}

/// The time that is shown: until arrivals end, or the slowest of the first minutes after.
pub(crate) fn span_of(scenario: &Scenario, courses: &[Course]) -> usize {
    let shown = usize::try_from(scenario.arrivals_until().as_secs()).unwrap_or(usize::MAX).max(1);
    let longest = courses.iter().map(|course| course.loads.len()).max().unwrap_or(1);
    longest.clamp(1, shown)
}

/// Above this everything fails.
pub(crate) fn top_of(scenario: &Scenario) -> f64 {
    scenario.capacity.0.max(scenario.capacity_at(scenario.recovery())) * 1.5
}

/// The highest load of each part of the time.
pub(crate) fn columns_of(loads: &[u32], seconds: usize, columns: usize) -> Vec<u32> {
    (0..columns)
        .map(|column| {
            let (from, until) = (column * seconds / columns, (column + 1) * seconds / columns);
            (from..until.max(from + 1)).filter_map(|second| loads.get(second)).max().copied().unwrap_or(0)
        })
        .collect()
}

fn is_down(scenario: &Scenario, column: usize, seconds: usize) -> bool {
    let middle = (column as f64 + 0.5) * seconds as f64 / COLUMNS as f64;
    scenario.down().any(|(begin, end)| (begin.as_secs_f64()..end.as_secs_f64()).contains(&middle))
}

fn cell(load: u32, top: f64, row: usize) -> char {
    let load = f64::from(load);
    if load > top && row + 1 == ROWS {
        return '▲';
    }
    let eighths = (load / top * (ROWS * 8) as f64).ceil() as usize;
    EIGHTHS[eighths.saturating_sub(row * 8).min(8)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_at_all_is_seen_and_what_collapses_it_is_marked() {
        assert_eq!(cell(0, 450.0, 0), ' ');
        assert_eq!(cell(1, 450.0, 0), '▁');
        assert_eq!(cell(450, 450.0, ROWS - 1), '█');
        assert_eq!(cell(451, 450.0, ROWS - 1), '▲');
        assert_eq!(columns_of(&[1, 9, 2, 3], 4, 2), [9, 3]);
        assert_eq!(columns_of(&[7], 1, 3), [7, 7, 7]);
    }
}
