//! `redrive destinations` and `redrive credentials`: how the other sides stand, what is said of them, and what they may be
//! asked to bear.

use std::time::Duration;

use clap::{Args, Subcommand};
use http::Method;
use redrive::{Clock, Rate, Timestamp, span};
use redrive_server::printable;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{jobs_of, print_json};
use crate::client::{Need, Target, segment};
use crate::out::{self, Colour};
use crate::table::{Table, facts, number, text};
use crate::times;
use crate::trouble::{Done, Trouble};

/// What to do with destinations.
#[derive(Subcommand)]
pub(crate) enum DestinationsCommand {
    /// List the destinations that have something to say, and the limits that hold
    List(Everything),
    /// Show how one destination stands
    Show(Named),
    /// Hold its jobs until it is resumed; what runs may finish
    Pause(Named),
    /// End a pause
    Resume(Named),
    /// Say that it is there: what waits for it goes at once, in order, a few at first
    Up(Named),
    /// Say that it is gone: its jobs are held, at no cost, until it is said to be there
    Down(Named),
    /// Limit a destination, or all that match, on every server within a second
    ///
    /// What is not given is not limited, or is as usual. The longest pattern that matches decides, by itself.
    ///
    ///     redrive destinations limit '*.tmdb.org' --rate 10/s --concurrency 4
    #[command(verbatim_doc_comment)]
    Limit(Box<Limit>),
    /// Take back limits that were set; those of the configuration hold again
    Unlimit(Unlimit),
}

/// What to do with credentials.
#[derive(Subcommand)]
pub(crate) enum CredentialsCommand {
    /// Say that a credential was renewed: jobs that were held because it was not accepted go again
    Renewed(Named),
}

/// Nothing but where to ask.
#[derive(Args)]
pub(crate) struct Everything {
    #[command(flatten)]
    target: Target,
}

/// Which one.
#[derive(Args)]
pub(crate) struct Named {
    /// Its name, such as api.example.org
    name: String,
    #[command(flatten)]
    target: Target,
}

/// What they may be asked to bear.
#[derive(Args)]
pub(crate) struct Limit {
    /// A destination, or one with a * in front or behind
    pattern: String,
    /// Calls per time, all servers together: 10/s, 600/m, 5000/h
    #[arg(long, value_name = "RATE", value_parser = |text: &str| text.parse::<Rate>())]
    rate: Option<Rate>,
    /// How many may start at once before the rate is kept
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
    /// At least this long between the starts of two calls; instead of a rate
    #[arg(long, value_name = "DURATION", value_parser = span::parse)]
    min_gap: Option<Duration>,
    /// Calls under way at once, all servers together
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// How many different jobs must fail in a row for it to be taken for down; 0 never [default: 10]
    #[arg(long, value_name = "N")]
    breaker: Option<u32>,
    /// Retries for a hundred first attempts, beside ten a second; 0 leaves them alone [default: 20]
    #[arg(long, value_name = "PERCENT")]
    retry_budget: Option<u32>,
    /// The longest Retry-After that is obeyed [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = span::parse)]
    retry_after_max: Option<Duration>,
    #[command(flatten)]
    target: Target,
}

/// Which limits to take back.
#[derive(Args)]
pub(crate) struct Unlimit {
    /// The pattern they were set for
    pattern: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DestinationLine {
    name: String,
    state: String,
    reason: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    probe_at: Option<Timestamp>,
    level_per_second: Option<f64>,
    held: u64,
    limits: Map<String, Value>,
    learned: Map<String, Value>,
}

#[derive(Deserialize)]
struct RuleLine {
    pattern: String,
    from: String,
    limits: Map<String, Value>,
}

pub(crate) async fn run(command: DestinationsCommand) -> Done {
    match command {
        DestinationsCommand::List(Everything { target }) => list(&target).await,
        DestinationsCommand::Show(Named { name, target }) => {
            let path = format!("/destinations/{}", segment(&name));
            show(&target, Method::GET, &path).await
        }
        DestinationsCommand::Pause(named) => say(&named, "pause").await,
        DestinationsCommand::Down(named) => say(&named, "down").await,
        DestinationsCommand::Resume(named) => say(&named, "resume").await,
        DestinationsCommand::Up(named) => say(&named, "up").await,
        DestinationsCommand::Limit(limit) => set(*limit).await,
        DestinationsCommand::Unlimit(Unlimit { pattern, target }) => {
            let path = format!("/destinations/limits/{}", segment(&pattern));
            let client = target.reach(Need::Store).await?;
            let data = client.ask(Method::DELETE, &path, None::<&()>).await?;
            match target.json {
                true => print_json(&data),
                false => out::answer(&format!("{} is no longer limited by hand", printable(&pattern))),
            }
            Ok(())
        }
    }
}

pub(crate) async fn credentials(command: CredentialsCommand) -> Done {
    let CredentialsCommand::Renewed(Named { name, target }) = command;
    let path = format!("/credentials/{}/renewed", segment(&name));
    let data = target.reach(Need::Store).await?.ask(Method::POST, &path, None::<&()>).await?;
    if target.json {
        print_json(&data);
        return Ok(());
    }
    #[derive(Deserialize)]
    struct Released {
        released: u64,
    }
    match data.read::<Released>()?.released {
        0 => out::note("no destination was held because of it"),
        1 => out::answer("1 destination goes again"),
        released => out::answer(&format!("{released} destinations go again")),
    }
    Ok(())
}

async fn list(target: &Target) -> Done {
    let client = target.reach(Need::Store).await?;
    let data = client.get("/destinations").await?;
    if target.json {
        print_json(&data);
        return Ok(());
    }
    let destinations: Vec<DestinationLine> = data.read()?;
    let rules = client.get("/destinations/limits").await?;
    let rules: Vec<RuleLine> = rules.read()?;
    if destinations.is_empty() {
        out::note("no destination has anything to say: all are open");
    } else {
        print(&destinations);
    }
    if !rules.is_empty() {
        out::answer("");
        print_rules(&rules);
    }
    Ok(())
}

async fn say(named: &Named, verb: &str) -> Done {
    let path = format!("/destinations/{}/{verb}", segment(&named.name));
    show(&named.target, Method::POST, &path).await
}

async fn show(target: &Target, method: Method, path: &str) -> Done {
    let data = target.reach(Need::Store).await?.ask(method, path, None::<&()>).await?;
    match target.json {
        true => print_json(&data),
        false => print_one(&data.read()?),
    }
    Ok(())
}

async fn set(limit: Limit) -> Done {
    let mut body = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        body.extend(value.map(|value| (name.to_owned(), value)));
    };
    put("rate", limit.rate.map(|rate| rate.to_string().into()));
    put("burst", limit.burst.map(Value::from));
    put("minGap", limit.min_gap.map(|gap| span::format(gap).into()));
    put("concurrency", limit.concurrency.map(Value::from));
    put("breaker", limit.breaker.map(Value::from));
    put("retryBudget", limit.retry_budget.map(Value::from));
    put("retryAfterMax", limit.retry_after_max.map(|max| span::format(max).into()));
    if body.is_empty() {
        return Err(Trouble::usage("no limit is given", "give one, such as --rate 10/s; see --help"));
    }
    let path = format!("/destinations/limits/{}", segment(&limit.pattern));
    let client = limit.target.reach(Need::Store).await?;
    let data = client.ask(Method::PUT, &path, Some(&json!(body))).await?;
    match limit.target.json {
        true => print_json(&data),
        false => print_rules(&[data.read()?]),
    }
    Ok(())
}

fn colour(state: &str) -> Colour {
    match state {
        "open" => Colour::Green,
        "shut" | "probing" => Colour::Red,
        _ => Colour::Yellow,
    }
}

/// What comes next, and when.
fn next(line: &DestinationLine, now: Timestamp) -> String {
    match (line.state.as_str(), line.reason.as_deref()) {
        ("paused", _) => "until it is resumed".into(),
        ("shut", Some("said")) => "until it is said to be up".into(),
        ("shut", Some("credential")) => "until its credential is renewed".into(),
        ("shut", _) => match (line.until, line.probe_at) {
            (Some(until), _) => format!("pause asked for, over {}", times::relative(until, now)),
            (None, Some(probe)) if probe > now => format!("asked again {}", times::relative(probe, now)),
            _ => "asked again with the next job".into(),
        },
        ("probing", _) => "one job is asking whether it is back".into(),
        ("ramp", _) => line.level_per_second.map_or_else(String::new, |level| format!("{level}/s, rising")),
        _ => String::new(),
    }
}

fn print(destinations: &[DestinationLine]) {
    let now = Clock::system().now();
    let mut table = Table::new(&["destination", "state", "since", "held", "limits", "next"]);
    for line in destinations {
        table.row(vec![
            text(&line.name),
            text(&line.state).coloured(Some(colour(&line.state))),
            text(line.since.map_or_else(|| "–".to_owned(), |since| times::relative(since, now))),
            number(line.held),
            text(limits(&line.limits)),
            text(next(line, now)),
        ]);
    }
    table.print();
}

fn print_one(line: &DestinationLine) {
    let now = Clock::system().now();
    let mut shown = vec![
        ("destination", printable(&line.name).into_owned()),
        ("state", out::coloured(&line.state, colour(&line.state))),
    ];
    let mut put = |name: &'static str, value: Option<String>| {
        shown.extend(value.filter(|value| !value.is_empty()).map(|value| (name, value)));
    };
    put("reason", line.reason.as_ref().map(|reason| reason.replace('_', " ")));
    put("since", line.since.map(|since| times::relative(since, now)));
    put("next", Some(next(line, now)));
    put("held", Some(jobs_of(line.held)));
    put("limits", Some(limits(&line.limits)));
    put("learned", Some(written(&line.learned)));
    facts(&shown);
}

fn print_rules(rules: &[RuleLine]) {
    let mut table = Table::new(&["pattern", "from", "limits"]);
    for rule in rules {
        table.row(vec![text(&rule.pattern), text(&rule.from), text(limits(&rule.limits))]);
    }
    table.print();
}

/// What differs from the usual.
fn limits(limits: &Map<String, Value>) -> String {
    let usual = json!({ "breaker": 10, "retryBudget": 20, "retryAfterMax": "1d" });
    let unusual = limits.iter().filter(|(name, value)| usual.get(name.as_str()) != Some(value));
    written(&unusual.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// `rate 10/s, min gap 5s`.
fn written(values: &Map<String, Value>) -> String {
    let words = |name: &str| -> String {
        name.chars()
            .flat_map(|c| if c.is_ascii_uppercase() { vec![' ', c.to_ascii_lowercase()] } else { vec![c] })
            .collect()
    };
    let one = |(name, value): (&String, &Value)| {
        format!("{} {}", words(name), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    printable(&values.iter().map(one).collect::<Vec<_>>().join(", ")).into_owned()
}
