//! What a media file's name says: title, year, season and episode. Pure.

use redrive::Failure;
use serde::{Deserialize, Serialize};

/// What is looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Title {
    /// As people say it.
    pub name: String,
    /// When it came out.
    pub year: Option<u16>,
    /// Season and number.
    pub episode: Option<(u16, u16)>,
}

/// The endings of files that are looked at.
const VIDEOS: [&str; 7] = ["mkv", "mp4", "avi", "mov", "ts", "webm", "m4v"];
/// From the first of these words on, a name tells how the file was made.
const ABOUT_THE_FILE: [&str; 16] = [
    "480p", "720p", "1080p", "2160p", "4k", "bluray", "bdrip", "web", "webrip", "web-dl", "hdtv", "dvdrip",
    "x264", "x265", "hevc", "remux",
];

/// Reads a file's name.
///
/// # Errors
///
/// A failure that no other try will mend: `INVALID_INPUT`.
pub fn parse(file: &str) -> Result<Title, Failure> {
    let wrong = |why: &str| Failure::from_code("INVALID_INPUT", format!("{file:?} {why}"));
    let (stem, ending) = file.rsplit_once('.').ok_or_else(|| wrong("has no ending"))?;
    if !VIDEOS.contains(&ending.to_ascii_lowercase().as_str()) {
        return Err(wrong("is no video"));
    }
    let mut title = Title { name: String::new(), year: None, episode: None };
    let mut words = Vec::new();
    for word in without_group(stem).split(['.', '_', ' ']) {
        // A dash between two words is neither.
        if !word.contains(char::is_alphanumeric) {
            continue;
        }
        let bare = word.trim_matches(['(', ')', '[', ']']);
        if let Some(episode) = episode(bare) {
            title.episode = Some(episode);
            break;
        }
        // A film may be called by a year, but not by nothing else.
        if let (Some(year), false) = (year(bare), words.is_empty()) {
            title.year = Some(year);
            break;
        }
        if ABOUT_THE_FILE.contains(&bare.to_ascii_lowercase().as_str()) {
            break;
        }
        words.push(bare);
    }
    title.name = words.join(" ");
    if title.name.is_empty() { Err(wrong("names no title")) } else { Ok(title) }
}

/// `[Group] Title` is about the title.
fn without_group(stem: &str) -> &str {
    match stem.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, title)) => title,
        None => stem,
    }
}

fn year(word: &str) -> Option<u16> {
    word.parse().ok().filter(|year| word.len() == 4 && (1900..2100).contains(year))
}

/// `S01E02` or `1x02`.
fn episode(word: &str) -> Option<(u16, u16)> {
    let word = word.to_ascii_lowercase();
    let (season, number) = match word.strip_prefix('s') {
        Some(rest) => rest.split_once('e')?,
        None => word.split_once('x')?,
    };
    Some((season.parse().ok()?, number.parse().ok()?))
}
