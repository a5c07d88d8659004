//! What an operator allows: a program, its arguments with places for data, and what it may know.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use redrive::{secs, span};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One argument. The kernel takes 128 KiB.
pub(super) const PARAM_BYTES_MAX: usize = 32 * 1024;
/// How long a program may run at most.
const TIMEOUT_MAX: Duration = redrive::hours(24);

/// One command that jobs may name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandEntry {
    /// What jobs call it.
    pub name: String,
    /// The program by its full path, and its arguments. An argument `{x}` stands for the job's param `x`, which becomes
    /// that one argument, whatever is in it.
    pub argv: Vec<String>,
    /// All that the program finds in its environment, beside `REDRIVE_JOB_ID` and `REDRIVE_ATTEMPT`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The folder it runs in, by its full path; the server's if none is given.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// When it is killed. Default 60 seconds.
    #[serde(with = "span::text", default = "timeout_default")]
    pub timeout: Duration,
    /// Exit codes after which trying again is no use. All others but 0 are tried again.
    #[serde(default)]
    pub permanent_exit_codes: Vec<i32>,
}

fn timeout_default() -> Duration {
    secs(60)
}

impl CommandEntry {
    /// What is wrong with it.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut say = |problem: String| problems.push(format!("command {:?}: {problem}", self.name));
        if self.name.is_empty() || self.name.len() > 64 || self.name.chars().any(char::is_control) {
            say("a name has 1 to 64 characters".to_owned());
        }
        match self.argv.first() {
            None => say("argv is empty; write the program and its arguments".to_owned()),
            Some(program) if !program.starts_with('/') => {
                say(format!(
                    "{program:?} is not a full path; write where the program is, as `which` prints it"
                ));
            }
            Some(_) => {}
        }
        for argument in &self.argv {
            if placeholder(argument).is_none() && holds_placeholder(argument) {
                say(format!(
                    "{argument:?}: a placeholder is a whole argument; write \"--name\", \"{{x}}\" as two"
                ));
            }
            if argument.contains('\0') {
                say(format!("{argument:?} holds NUL"));
            }
        }
        if self.cwd.as_ref().is_some_and(|folder| !folder.is_absolute()) {
            say("cwd is not a full path".to_owned());
        }
        if self
            .env
            .iter()
            .any(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
        {
            say("env holds a name that cannot be set".to_owned());
        }
        if self.timeout.is_zero() || self.timeout > TIMEOUT_MAX {
            say(format!(
                "timeout is {}; write 1ms to {}",
                span::format(self.timeout),
                span::format(TIMEOUT_MAX)
            ));
        }
        problems
    }

    /// The arguments with the params in their places.
    pub(super) fn fill(&self, params: &BTreeMap<&str, String>) -> Result<Vec<String>, String> {
        let places: Vec<&str> = self.argv.iter().filter_map(|argument| placeholder(argument)).collect();
        if let Some(stray) = params.keys().find(|name| !places.contains(name)) {
            let places = if places.is_empty() { "none".to_owned() } else { places.join(", ") };
            return Err(format!(
                "param {stray:?}: {:?} has no place for it; its params: {places}",
                self.name
            ));
        }
        let mut options_are_over = false;
        let mut filled = Vec::with_capacity(self.argv.len());
        for argument in &self.argv {
            let Some(name) = placeholder(argument) else {
                options_are_over |= argument == "--";
                filled.push(argument.clone());
                continue;
            };
            let value = params.get(name).ok_or_else(|| format!("param {name:?} is missing"))?;
            // Behind `--` it is data to any program; before, it would be an option nobody allowed.
            if value.starts_with('-') && !options_are_over {
                return Err(format!(
                    "param {name:?} begins with a hyphen, which the program would take as an option"
                ));
            }
            filled.push(value.clone());
        }
        Ok(filled)
    }
}

/// The text a param's value is as an argument.
pub(super) fn argument(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (text.len() <= PARAM_BYTES_MAX && !text.contains('\0')).then_some(text)
}

/// `x` of `{x}`.
fn placeholder(argument: &str) -> Option<&str> {
    let name = argument.strip_prefix('{')?.strip_suffix('}')?;
    is_name(name).then_some(name)
}

fn holds_placeholder(argument: &str) -> bool {
    argument.split('{').skip(1).any(|rest| rest.split_once('}').is_some_and(|(name, _)| is_name(name)))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(argv: &[&str]) -> CommandEntry {
        serde_json::from_value(json!({"name": "test", "argv": argv})).unwrap()
    }

    fn fill(argv: &[&str], params: &[(&str, &str)]) -> Result<Vec<String>, String> {
        entry(argv).fill(&params.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
    }

    #[test]
    fn a_param_is_one_argument_whatever_is_in_it() {
        for value in
            ["a b", "$(reboot)", "`id`", "; rm -rf /", "a\nb", "{x}", "'\"", "*", "", "a=b", "\u{1b}[31m"]
        {
            assert_eq!(fill(&["/bin/echo", "{x}", "z"], &[("x", value)]).unwrap(), ["/bin/echo", value, "z"]);
        }
    }

    #[test]
    fn a_param_is_an_option_only_where_none_can_be() {
        for value in ["-rf", "--output=/etc/passwd", "-", "--"] {
            assert!(fill(&["/bin/echo", "{x}"], &[("x", value)]).unwrap_err().contains("hyphen"), "{value}");
            assert_eq!(fill(&["/bin/echo", "--", "{x}"], &[("x", value)]).unwrap()[2], value);
        }
        // A `--` that came as data ends no options.
        assert!(fill(&["/bin/echo", "{x}", "--", "{y}"], &[("x", "--"), ("y", "-a")]).is_err());
    }

    #[test]
    fn params_are_neither_missing_nor_left_over() {
        assert!(fill(&["/bin/echo", "{x}"], &[]).unwrap_err().contains("\"x\" is missing"));
        assert!(
            fill(&["/bin/echo", "{x}"], &[("x", "1"), ("y", "2")]).unwrap_err().contains("its params: x")
        );
        assert_eq!(argument(&json!(7)).as_deref(), Some("7"));
        for wrong in
            [json!(null), json!([1]), json!({"a": 1}), json!("a\0b"), json!("x".repeat(PARAM_BYTES_MAX + 1))]
        {
            assert_eq!(argument(&wrong), None);
        }
    }

    #[test]
    fn an_entry_that_cannot_work_says_why() {
        for (argv, says) in [
            (&[][..], "argv is empty"),
            (&["echo"][..], "not a full path"),
            (&["/bin/echo", "--name={x}"][..], "a whole argument"),
            (&["{x}"][..], "not a full path"),
        ] {
            let problems = entry(argv).problems();
            assert!(problems.iter().any(|problem| problem.contains(says)), "{argv:?}: {problems:?}");
        }
        assert!(entry(&["/usr/bin/jq", "{a: .b, c: 1}", "{x}"]).problems().is_empty());
        let long: Result<CommandEntry, _> =
            serde_json::from_value(json!({"name": "x", "argv": ["/bin/true"], "timeout": "25h"}));
        assert_eq!(long.unwrap().problems().len(), 1);
        assert!(
            serde_json::from_value::<CommandEntry>(json!({"name": "x", "argv": [], "shell": true})).is_err()
        );
    }
}
