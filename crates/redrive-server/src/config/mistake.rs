//! What is wrong with a configuration: where it stands, and what to write instead.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use redrive::closest;

use crate::printable;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Nobody said otherwise.
    Default,
    /// A file: its line and column, both from 1.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A flag on the command line.
    Flag(String),
}

impl Place {
    /// The beginning of a file, where the trouble is with the file as a whole.
    pub(super) fn top_of(path: &Path) -> Place {
        Place::File { path: path.into(), line: 1, column: 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Default => f.write_str("default"),
            Place::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", printable(&path.to_string_lossy()))
            }
            Place::Variable(name) | Place::Flag(name) => f.write_str(&printable(name)),
        }
    }
}

/// Something that cannot be meant, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands.
    pub place: Place,
    /// Which key it is about, such as `queues.mail.order`. Empty where it is about a file.
    pub key: String,
    /// What is wrong, and what to write.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", printable(&self.key))?;
        }
        f.write_str(&printable(&self.message))
    }
}

/// `"fulll" is not known; did you mean "full"?`, or all there is to choose from.
pub(crate) fn unknown_word<'a>(got: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let quoted =
        |words: Vec<&str>| words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
    match closest(got, known.clone()) {
        Some(meant) => format!("{got:?} is not known; did you mean {meant:?}?"),
        None => format!("{got:?} is not known; write one of {}", quoted(known.into_iter().collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_is_recognised_and_a_different_word_is_not() {
        let known = ["listen", "lease", "log", "log_format", "hosts"];
        for (got, meant) in [
            ("lisen", "listen"),
            ("liseten", "listen"),
            ("Listen", "listen"),
            ("lgo", "log"),
            ("host", "hosts"),
            ("log_f", "log_format"),
        ] {
            assert_eq!(closest(got, known), Some(meant), "{got}");
        }
        for got in ["colour", "port", "x"] {
            assert_eq!(closest(got, known), None, "{got}");
        }
    }

    #[test]
    fn a_mistake_cannot_forge_a_line_of_its_own() {
        let mistake = Mistake {
            place: Place::Variable("REDRIVE_LOG".into()),
            key: "log".into(),
            message: "\"a\nerror: b\" cannot be read".into(),
        };
        assert_eq!(mistake.to_string(), "REDRIVE_LOG: log: \"a\\nerror: b\" cannot be read");
    }
}
