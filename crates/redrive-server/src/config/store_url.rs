//! A store as configurations and the command line name it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the jobs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database, by its URL.
    Postgres(String),
}

impl StoreUrl {
    /// The URL with its password hidden, for people.
    pub fn shown(&self) -> String {
        match self {
            StoreUrl::Sqlite(_) => self.to_string(),
            StoreUrl::Postgres(url) => without_password(url),
        }
    }
}

/// `postgres://user:***@host/database?password=***`.
fn without_password(url: &str) -> String {
    let Ok(mut parsed) = url::Url::parse(url) else {
        // Several hosts in one URL are PostgreSQL's own way of writing, which the parser does not know.
        return "postgres://(hidden)".to_owned();
    };
    let pairs: Vec<(String, String)> = parsed.query_pairs().into_owned().collect();
    if pairs.iter().any(|(key, _)| key == "password") {
        let hidden = pairs.iter().map(|(key, value)| (key, if key == "password" { "***" } else { value }));
        parsed.query_pairs_mut().clear().extend_pairs(hidden);
    }
    if parsed.password().is_some() && parsed.set_password(Some("***")).is_err() {
        return "postgres://(hidden)".to_owned();
    }
    parsed.to_string()
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<StoreUrl, String> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(StoreUrl::Postgres(text.into()));
        }
        match text.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() => Ok(StoreUrl::Sqlite(path.into())),
            _ => Err("write sqlite: and a path, for example sqlite:/tmp/bench.db, or a URL like \
                      postgres://user@host/database"
                .into()),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            StoreUrl::Postgres(url) => f.write_str(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        for (url, shown) in [
            ("postgres://me:pass@host/jobs", "postgres://me:***@host/jobs"),
            ("postgres://host/jobs?user=me&password=pass", "postgres://host/jobs?user=me&password=***"),
            ("postgres://me@host/jobs", "postgres://me@host/jobs"),
            ("postgres://me:pass@one,two/jobs", "postgres://(hidden)"),
            ("sqlite:jobs.db", "sqlite:jobs.db"),
        ] {
            let shown_url = url.parse::<StoreUrl>().unwrap().shown();
            assert!(!shown_url.contains("pass@") && !shown_url.contains("=pass"), "{shown_url}");
            // A host with a comma may or may not be a host to the parser; what counts is that no password shows.
            assert!(shown_url == shown || url.contains(','), "{shown_url}");
        }
    }
}
