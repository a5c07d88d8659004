//! The program as it introduces itself: a batch of articles, some of which cannot be had, and one that is urgent.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use anyhow::{Result, ensure};
use redrive::{Filter, StateName};
use tokio::sync::oneshot;

use super::{Article, PLACES, Program, Web};
use crate::stage::interrupted;
use crate::{Pace, Play, Stage};

/// Five of these are fine, at once or later; three are hopeless, and one is given up in the end.
const PAGES: [&str; 9] = ["fine", "fine", "once-503", "once-429", "404", "403", "empty", "502", "fine"];

/// Runs the program: to its end at a quick pace, at the real one until somebody interrupts it.
///
/// # Errors
///
/// What went wrong, or did not end as it should.
pub async fn tell(stage: Stage) -> Result<()> {
    let web = Web::start().await?;
    let program = Program::open(&stage, PLACES).await?;
    println!("dashboard: http://{}", program.dashboard);
    println!("web:       http://{}", web.address);
    if stage.play == Play::Idle {
        return program.run(interrupted()).await;
    }
    let feed = program.feed.clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(program.run(async { drop(stopped.await) }));

    let mut articles: Vec<Article> =
        (1..).zip(PAGES).map(|(id, page)| Article { id, url: web.url(page, id) }).collect();
    articles.push(Article { id: 10, url: "http://169.254.169.254/latest/meta-data/".into() });
    articles.push(Article { id: 11, url: "not a url".into() });
    feed.add(articles, 0).await?;
    let urgent = feed.add(vec![Article { id: 12, url: web.url("fine", 12) }], 10).await?;
    println!("12 articles, the last of them urgent: {}", urgent[0].id);

    if stage.pace == Pace::REAL {
        interrupted().await;
    } else {
        // Every article ends, by itself, as one or the other.
        let mut events = feed.engine().events();
        let live = Filter { states: vec![StateName::Waiting, StateName::Running], ..Filter::default() };
        while feed.engine().count(&live, 1).await? > 0 {
            events.recv().await?;
        }
        let count = async |state| {
            let of = Filter { states: vec![state], ..Filter::default() };
            anyhow::Ok(feed.engine().count(&of, 100).await?)
        };
        let (fetched, dead) = (count(StateName::Succeeded).await?, count(StateName::Dead).await?);
        println!("{fetched} were fetched, {dead} are dead letters, by what they died of:");
        for group in feed.engine().groups(10).await? {
            let newest = feed.engine().get(group.newest).await?;
            let failure =
                newest.and_then(|detail| detail.attempts.into_iter().rev().find_map(|it| it.failure));
            println!(
                "  {} × {}",
                group.count,
                failure.map(|it| it.in_full().into_owned()).unwrap_or_default()
            );
        }
        ensure!((fetched, dead) == (6, 6), "six are fetched and six are not, not {fetched} and {dead}");
    }
    drop(stop);
    running.await?
}
