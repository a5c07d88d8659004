//! One page with the same: a table and a chart for each policy. Complete in itself, light and dark.

use std::fmt::Write as _;

use super::chart::{columns_of, span_of, top_of};
use super::course::Course;
use super::scenario::Scenario;

/// Points of a chart.
const POINTS: usize = 480;
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 140.0;
const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1d21; --dim: #646c76; --ground: #ffffff; --line: #d9dde2; --load: #1f6feb; --down: #f6d5d2; --limit: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #9aa3ad; --ground: #14171a; --line: #31363c; --load: #6cb0ff; --down: #4a2422; --limit: #ff8a80; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin: 1.6rem 0 .3rem; } p { color: var(--dim); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; } .scroll { overflow-x: auto; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; display: block; border-bottom: 1px solid var(--line); }
.down { fill: var(--down); } .load { fill: none; stroke: var(--load); stroke-width: 1.5; } .limit { stroke: var(--limit); stroke-dasharray: 4 4; } text { fill: var(--dim); font-size: 12px; }
";

/// The page.
pub fn page(scenario: &Scenario, courses: &[Course]) -> String {
    let seconds = span_of(scenario, courses);
    let title = "What an outage costs";
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n<p>{} jobs arrive, the destination bears {} and \
         a call takes {}. Red is when nothing is there; the dashed line is what it bears; the charts end where \
         everything fails. Preset {}, seed {}.</p>\n",
        scenario.arrivals,
        scenario.capacity,
        redrive::span::format(scenario.latency),
        escaped(&scenario.preset),
        scenario.seed,
    );
    text += &table(courses);
    for course in courses {
        let _ = write!(text, "<h2>{}</h2>\n{}", escaped(&course.name), drawing(scenario, course, seconds));
    }
    text + "</html>\n"
}

fn table(courses: &[Course]) -> String {
    let mut text = String::from(
        "<div class=\"scroll\"><table><thead><tr><th>policy<th>calls<th>of them wasted<th>failures counted\
         <th>calls while down<th>jobs dead<th>peak per second<th>drained after<th>ideal</tr></thead><tbody>\n",
    );
    let seconds = |time: Option<f64>| time.map_or_else(|| "never".to_owned(), |time| format!("{time:.0} s"));
    for course in courses {
        let _ = writeln!(
            text,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            escaped(&course.name),
            course.attempts,
            course.wasted(),
            course.failures,
            course.calls_during_outage,
            course.dead,
            course.peak_per_s,
            seconds(course.drain_s),
            seconds(course.ideal_drain_s),
        );
    }
    text + "</tbody></table></div>\n"
}

fn drawing(scenario: &Scenario, course: &Course, seconds: usize) -> String {
    let top = top_of(scenario);
    let across = |second: f64| second / seconds as f64 * WIDTH;
    let mut text = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Calls per second: {}\">\n",
        escaped(&course.name)
    );
    for (begin, end) in scenario.down() {
        let (from, until) = (across(begin.as_secs_f64()), across(end.as_secs_f64()));
        let _ = writeln!(
            text,
            "<rect class=\"down\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{HEIGHT}\"/>",
            until - from
        );
    }
    let limit = HEIGHT - scenario.capacity_at(scenario.recovery()) / top * HEIGHT;
    let _ = writeln!(
        text,
        "<line class=\"limit\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{limit:.1}\" y2=\"{limit:.1}\"/>\
         <text x=\"4\" y=\"14\">{top:.0}/s</text>"
    );
    let columns = columns_of(&course.loads, seconds, POINTS);
    let points = columns.iter().enumerate().map(|(index, load)| {
        let high = (f64::from(*load) / top).min(1.0) * (HEIGHT - 2.0);
        format!("{:.1},{:.1}", index as f64 * WIDTH / POINTS as f64, HEIGHT - 1.0 - high)
    });
    let points: Vec<String> = points.collect();
    let _ = writeln!(text, "<polyline class=\"load\" points=\"{}\"/></svg>", points.join(" "));
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
