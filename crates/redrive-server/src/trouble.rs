//! Why a command did not do what it was asked: what to tell a person, and the exit code for a script.

use std::process::ExitCode;

use redrive_server::config::{Mistake, closest};
use serde::Deserialize;

/// What the exit code of a command says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    Unreachable = 69,
    Temporary = 75,
    BadConfig = 78,
    Interrupted = 130,
}

/// Every exit code and what it means, as the reference has it.
pub(crate) const EXITS: [(u8, &str); 9] = [
    (0, "Done."),
    (1, "It failed, was refused, or was not confirmed. `error:` on stderr says why."),
    (2, "The command line was not understood, or a question could not be asked: give `--yes`."),
    (3, "There is no such job, queue or page."),
    (4, "It is not in a state in which this can be done, or its key is taken."),
    (69, "The store or the server cannot be reached."),
    (75, "Not now: the queue is full, the disk is full, or the server is busy. Try again later."),
    (78, "The configuration has mistakes."),
    (130, "Interrupted."),
];

/// Why it was not done.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// What a command comes to.
pub(crate) type Done<T = ()> = Result<T, Trouble>;

impl Trouble {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Trouble {
        Trouble { exit, message: message.into(), hint: None }
    }

    /// A command line that says too little or too much.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Trouble {
        Trouble::new(Exit::Usage, message).hint(hint)
    }

    /// With what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Trouble {
        self.hint = Some(hint.into());
        self
    }

    /// Everything that is wrong with the configuration.
    pub(crate) fn config(mistakes: &[Mistake]) -> Trouble {
        let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        Trouble::new(Exit::BadConfig, format!("the configuration has mistakes\n{}", lines.join("\n")))
    }

    /// A store that does not open, or does not do it.
    pub(crate) fn store(error: &redrive::Error) -> Trouble {
        let text = error.to_string();
        let message = text.split("\nhint: ").next().unwrap_or_default();
        let exit = match error.kind() {
            redrive::ErrorKind::Conflict => Exit::Conflict,
            redrive::ErrorKind::Invalid => Exit::Failed,
            _ => Exit::Unreachable,
        };
        let mut trouble = Trouble::new(exit, message);
        trouble.hint = error.hint().map(str::to_owned);
        trouble
    }

    /// What the API has refused.
    pub(crate) fn refused(status: http::StatusCode, body: &[u8]) -> Trouble {
        let Ok(Refused { error }) = serde_json::from_slice::<Refused>(body) else {
            let message = format!("the server answered {status}, and not as a Redrive server does");
            return Trouble::new(Exit::Failed, message).hint("look at the URL again");
        };
        let exit = match (error.code.as_str(), status.as_u16()) {
            ("RETRY_QUEUE_FULL" | "RETRY_DISK_FULL" | "RETRY_BUSY" | "RETRY_RATE_LIMITED", _) => {
                Exit::Temporary
            }
            ("RETRY_STORE_UNAVAILABLE" | "RETRY_STORE_IN_USE", _) => Exit::Unreachable,
            (_, 404) => Exit::NotFound,
            (_, 409 | 412) => Exit::Conflict,
            _ => Exit::Failed,
        };
        let trouble = Trouble::new(exit, format!("{} ({})", guessed(error.message), error.code));
        Trouble { hint: error.hint.map(in_our_words), ..trouble }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit as u8)
    }
}

/// What the API tells its callers to do, and what that is on the command line.
const WORDS: [(&str, &str); 5] = [
    ("send the header Authorization: Bearer rdv_…", "give --token-file FILE (or REDRIVE_TOKEN_FILE)"),
    ("all presets are at GET /api/v1/policies/presets", "see all of them with: redrive policy presets"),
    ("try it at POST /api/v1/policies/preview", "try it with: redrive policy check FILE"),
    ("are at GET /api/v1/destinations", "are listed by: redrive destinations list"),
    ("ask GET /api/v1/jobs", "ask with: redrive jobs list"),
];

fn in_our_words(hint: String) -> String {
    WORDS.iter().fold(hint, |hint, (theirs, ours)| hint.replace(theirs, ours))
}

/// What was probably meant, instead of everything there is to choose from.
fn guessed(message: String) -> String {
    let guess = || {
        let (what, known) = message.split_once("; write one of ")?;
        let got = what.strip_suffix('"')?.rsplit('"').next()?;
        Some(format!("{what}; did you mean {:?}?", closest(got, known.split(", "))?))
    };
    guess().unwrap_or(message)
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Trouble {
        Trouble::new(Exit::Failed, format!("{error:#}"))
    }
}

#[derive(Deserialize)]
struct Refused {
    error: RefusedError,
}

#[derive(Deserialize)]
struct RefusedError {
    code: String,
    message: String,
    hint: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_speaks_as_a_command_line_does() {
        let refused = |message: &str, hint: &str| {
            let error = serde_json::json!({ "code": "RETRY_INVALID", "message": message, "hint": hint });
            let body = serde_json::json!({ "error": error }).to_string();
            Trouble::refused(http::StatusCode::UNPROCESSABLE_ENTITY, body.as_bytes())
        };
        let preset = redrive::Policy::preset("medai").unwrap_err();
        let trouble = refused(&preset, "all presets are at GET /api/v1/policies/presets");
        assert_eq!(trouble.message, "there is no preset \"medai\"; did you mean \"media\"? (RETRY_INVALID)");
        assert_eq!(trouble.hint.as_deref(), Some("see all of them with: redrive policy presets"));
        let far = redrive::Policy::preset("x").unwrap_err();
        assert!(refused(&far, "").message.contains("write one of media, "));
    }

    #[test]
    fn a_refusal_ends_with_the_code_of_its_situation() {
        for (code, status, exit) in [
            ("RETRY_NOT_FOUND", 404, Exit::NotFound),
            ("RETRY_CONFLICT", 409, Exit::Conflict),
            ("RETRY_INVALID", 422, Exit::Failed),
            ("RETRY_QUEUE_FULL", 503, Exit::Temporary),
            ("RETRY_BUSY", 503, Exit::Temporary),
            ("RETRY_RATE_LIMITED", 429, Exit::Temporary),
            ("RETRY_STORE_UNAVAILABLE", 503, Exit::Unreachable),
            ("RETRY_FORBIDDEN", 403, Exit::Failed),
        ] {
            let body =
                format!(r#"{{"success":false,"error":{{"code":"{code}","message":"so","hint":"do"}}}}"#);
            let trouble = Trouble::refused(http::StatusCode::from_u16(status).unwrap(), body.as_bytes());
            assert_eq!((trouble.exit, trouble.hint.as_deref()), (exit, Some("do")), "{code}");
            assert!(EXITS.iter().any(|(number, _)| *number == exit as u8), "{exit:?} is documented");
        }
        let strange = Trouble::refused(http::StatusCode::BAD_GATEWAY, b"<html>");
        assert_eq!(strange.exit, Exit::Failed);
    }
}
