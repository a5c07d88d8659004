//! `redrive policy` and `redrive explain-classify`: what would happen.

use std::path::Path;

use clap::{Args, Subcommand};
use redrive_server::config::{self, Mistake};
use redrive_server::printable;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{json_from, print_json, read_from, up_to};
use crate::client::{Data, Need, Target};
use crate::out::{self, Colour};
use crate::table::{Table, facts, number, text};
use crate::trouble::{Done, Exit, Trouble};

/// The longest bar, and what is left of it where there is hardly room for any.
const BAR: usize = 40;
const BAR_MIN: usize = 8;

/// What to know about policies.
#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the policies that have a name: built in, and configured
    Presets(Presets),
    /// Show the delays of a policy, as a table and as a picture
    Preview(Preview),
    /// Read a policy from a file or stdin, and say what is wrong with it
    Check(Check),
}

/// Nothing but where to ask.
#[derive(Args)]
pub(crate) struct Presets {
    #[command(flatten)]
    target: Target,
}

/// Which policy.
#[derive(Args)]
pub(crate) struct Preview {
    /// Its name (see `redrive policy presets`), JSON, @FILE, or - for stdin
    #[arg(value_name = "NAME|JSON|@FILE|-")]
    policy: String,
    /// How many retries to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = up_to::<1000>)]
    count: u32,
    #[command(flatten)]
    target: Target,
}

/// Which policy.
#[derive(Args)]
pub(crate) struct Check {
    /// A file with the policy, in JSON or (.toml) TOML; - for stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: String,
    #[command(flatten)]
    target: Target,
}

/// A failure to be classified.
#[derive(Args)]
pub(crate) struct Classify {
    /// What it says
    message: String,
    /// Its code, such as ECONNRESET
    #[arg(long)]
    code: Option<String>,
    /// The HTTP status it came with
    #[arg(long)]
    status: Option<u16>,
    /// Whose rules count: a policy's name, JSON, or @FILE
    #[arg(long, value_name = "NAME|JSON|@FILE")]
    policy: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// A policy by name or by value: JSON, or a file in either language.
pub(crate) fn policy_from(given: &str) -> Done<Box<RawValue>> {
    let raw = |value: Value| to_raw_value(&value).map_err(|error| Trouble::from(anyhow::Error::from(error)));
    match given.strip_prefix('@').map(Path::new) {
        Some(file) if file.extension().is_some_and(|extension| extension == "toml") => {
            let text = read_from(given, "the policy")?;
            raw(config::policy_in(file, &text).map_err(|mistakes| not_understood(&mistakes))?)
        }
        None if given != "-" && !given.starts_with('{') => raw(given.into()),
        _ => json_from(given, "the policy"),
    }
}

fn not_understood(mistakes: &[Mistake]) -> Trouble {
    let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    Trouble::new(Exit::Failed, format!("the policy is not understood\n{}", lines.join("\n")))
}

pub(crate) async fn run(command: PolicyCommand) -> Done {
    match command {
        PolicyCommand::Presets(Presets { target }) => presets(&target).await,
        PolicyCommand::Preview(Preview { policy, count, target }) => {
            let data = preview(&target, &policy_from(&policy)?, count).await?;
            match target.json {
                true => print_json(&data),
                false => draw(&data.read()?),
            }
            Ok(())
        }
        PolicyCommand::Check(Check { file, target }) => {
            let from = if file == "-" { file } else { format!("@{file}") };
            let data = preview(&target, &policy_from(&from)?, 1000).await.map_err(without_itself)?;
            match target.json {
                true => print_json(&data),
                false => out::answer(&format!("good: {}", data.read::<Previewed>()?.summary())),
            }
            Ok(())
        }
    }
}

/// That a check is what to try is no hint to whoever has just tried it.
fn without_itself(trouble: Trouble) -> Trouble {
    let hint = trouble.hint.filter(|hint| !hint.contains("redrive policy check"));
    Trouble { hint, ..trouble }
}

async fn preview(target: &Target, policy: &RawValue, count: u32) -> Done<Data> {
    #[derive(serde::Serialize)]
    struct Form<'a> {
        policy: &'a RawValue,
        count: u32,
    }
    let client = target.reach(Need::Config).await?;
    client.post("/policies/preview", &Form { policy, count }).await
}

/// What a policy does.
#[derive(Deserialize)]
struct Previewed {
    policy: Shape,
    delays: Vec<Delay>,
    retries: Option<u32>,
    lifetime: Option<String>,
}

/// A policy, as far as it is spoken about.
#[derive(Deserialize)]
struct Shape {
    jitter: Option<Jitter>,
}

#[derive(Deserialize)]
struct Jitter {
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delay {
    retry: u64,
    delay: String,
    delay_ms: u64,
    after: String,
}

impl Previewed {
    /// `4 retries within 15s`.
    fn summary(&self) -> String {
        let retries = match self.retries {
            Some(1) => "1 retry".to_owned(),
            Some(count) => format!("{count} retries"),
            None => "retries".to_owned(),
        };
        let last = self.delays.last().filter(|last| Some(last.retry) == self.retries.map(u64::from));
        match (last, &self.lifetime) {
            (Some(last), _) => format!("{retries} within {}", last.after),
            (None, Some(lifetime)) => format!("{retries} within {lifetime}"),
            (None, None) if self.retries.is_none() => "retries without end".to_owned(),
            (None, None) => retries,
        }
    }

    /// Whether the delays vary.
    fn has_jitter(&self) -> bool {
        self.policy.jitter.as_ref().is_some_and(|jitter| jitter.kind != "none")
    }
}

/// The delays as numbers and as bars, the longest as long as there is room.
fn draw(previewed: &Previewed) {
    if previewed.delays.is_empty() {
        out::answer("no retries: the first failure is the last");
        return;
    }
    let longest = previewed.delays.iter().map(|delay| delay.delay_ms).max().unwrap_or(0);
    let room = room_for_bars(&previewed.delays, out::width());
    let mut table = Table::new(&["retry", "delay", "after", ""]);
    for delay in &previewed.delays {
        table.row(vec![
            number(delay.retry),
            number(&delay.delay),
            number(&delay.after),
            text(bar(delay.delay_ms, longest, room)).coloured(Some(Colour::Blue)),
        ]);
    }
    table.print();
    let shown = previewed.delays.len() as u64;
    let more = previewed.retries.is_none_or(|retries| u64::from(retries) > shown);
    let rest = if more { format!("; the first {shown} are shown") } else { String::new() };
    let chance = if previewed.has_jitter() { ", before chance (jitter) is added" } else { "" };
    out::answer(&format!("\n{}{rest}{chance}", printable(&previewed.summary())));
}

/// What the numbers and the gaps before the bars leave of a terminal.
fn room_for_bars(delays: &[Delay], width: Option<usize>) -> usize {
    let widest = |of: fn(&Delay) -> usize| delays.iter().map(of).max().unwrap_or(0).max("retry".len());
    let numbers = widest(|delay| delay.delay.len()) + widest(|delay| delay.after.len()) + "retry".len() + 6;
    width.map_or(BAR, |width| width.saturating_sub(numbers).clamp(BAR_MIN, BAR))
}

/// A bar in eighths of a character, so that short delays differ too.
fn bar(delay_ms: u64, longest: u64, room: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if longest == 0 {
        return "▏".to_owned();
    }
    let eighths = u128::from(delay_ms) * (room as u128) * 8 / u128::from(longest);
    let eighths = usize::try_from(eighths).unwrap_or(0).max(1);
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// A policy with its name.
#[derive(Deserialize)]
struct Preset {
    name: String,
    delays: Vec<String>,
}

async fn presets(target: &Target) -> Done {
    let data = target.reach(Need::Config).await?.get("/policies/presets").await?;
    if target.json {
        print_json(&data);
        return Ok(());
    }
    let mut table = Table::new(&["name", "delays"]);
    for preset in data.read::<Vec<Preset>>()? {
        let delays =
            if preset.delays.is_empty() { "no retries".to_owned() } else { preset.delays.join(", ") };
        table.row(vec![text(&preset.name), text(delays)]);
    }
    table.print();
    Ok(())
}

/// What a failure is taken for.
#[derive(Deserialize)]
struct Class {
    class: String,
    retryable: bool,
    rule: String,
    group: String,
}

pub(crate) async fn classify(given: Classify) -> Done {
    let mut body = json!({ "message": given.message });
    if let Some(code) = &given.code {
        body["code"] = code.as_str().into();
    }
    if let Some(status) = given.status {
        body["status"] = status.into();
    }
    let policy = given.policy.as_deref().map(policy_from).transpose()?;
    if let Some(policy) = &policy {
        body["policy"] =
            serde_json::from_str(policy.get()).map_err(|error| Trouble::from(anyhow::Error::from(error)))?;
    }
    let client = given.target.reach(Need::Config).await?;
    let data = client.post("/classify", &body).await?;
    if given.target.json {
        print_json(&data);
        return Ok(());
    }
    let class: Class = data.read()?;
    let (verdict, colour) = match class.retryable {
        true => ("it will be tried again", Colour::Green),
        false => ("it will not be tried again", Colour::Red),
    };
    facts(&[
        ("class", printable(&class.class.replace('_', " ")).into_owned()),
        ("so", out::coloured(verdict, colour)),
        ("rule", printable(&class.rule).into_owned()),
        ("group", printable(&class.group).into_owned()),
    ]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_delay_has_the_longest_bar_and_the_shortest_is_seen() {
        assert_eq!(bar(1000, 1000, BAR).chars().count(), BAR);
        assert_eq!(bar(500, 1000, BAR), "█".repeat(BAR / 2));
        assert_eq!(bar(0, 1000, BAR), "▏");
        assert_eq!(bar(0, 0, BAR), "▏");
        assert_eq!(bar(u64::MAX, u64::MAX, BAR).chars().count(), BAR);
        assert_eq!(bar(1000, 1000, BAR_MIN).chars().count(), BAR_MIN, "where there is less room");
        let delay = Delay { retry: 1, delay: "10s".into(), delay_ms: 10_000, after: "1h30m10s".into() };
        assert_eq!(room_for_bars(&[delay], Some(44)), 20);
    }
}
