//! Settings by their path, from YAML or properties: as much of either as configurations of Spring use.

use std::collections::BTreeMap;

/// Values under paths such as `resilience4j.retry.instances.orders.maxattempts`. Names within a path are compared without
/// case and dashes, as Spring does; names that people gave keep how they are written.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Settings(pub(super) BTreeMap<Vec<String>, Vec<String>>);

impl Settings {
    /// One setting a line: `path = value`.
    pub(super) fn from_properties(text: &str) -> Settings {
        let mut settings = Settings::default();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let (path, value) = line.split_once(['=', ':']).unwrap_or((line, ""));
            let path = path.trim();
            // A list is written with numbers, or with commas.
            let (path, listed) = match path.split_once('[') {
                Some((path, _)) => (path, true),
                None => (path, false),
            };
            let values = settings.0.entry(path.split('.').map(str::to_owned).collect()).or_default();
            if listed {
                values.push(value.trim().to_owned());
            } else {
                values.extend(value.split(',').map(|value| value.trim().to_owned()));
            }
        }
        settings
    }

    /// Maps by indentation, lists of plain values, and quotes.
    pub(super) fn from_yaml(text: &str) -> Result<Settings, String> {
        let mut settings = Settings::default();
        // The names above this line, each with its indentation.
        let mut above: Vec<(usize, Vec<String>)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = without_comment(line);
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed == "---" {
                continue;
            }
            if line.contains('\t') {
                return Err(format!("line {}: a tab; indent with spaces", number + 1));
            }
            let indent = line.len() - line.trim_start().len();
            if let Some(item) = trimmed.strip_prefix("- ") {
                // A list may stand as far to the left as the name above it.
                above.retain(|(at, _)| *at <= indent);
                let path = path(&above);
                settings.0.entry(path).or_default().push(plain(item));
                continue;
            }
            above.retain(|(at, _)| *at < indent);
            let Some((name, value)) = split(trimmed) else {
                return Err(format!("line {}: {trimmed:?} is no `name: value`", number + 1));
            };
            let names: Vec<String> = plain(name).split('.').map(str::to_owned).collect();
            above.push((indent, names));
            let value = value.trim();
            match value.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
                Some(list) => {
                    let items = list.split(',').map(plain).filter(|item| !item.is_empty());
                    settings.0.entry(path(&above)).or_default().extend(items);
                }
                None if value.is_empty() => {}
                None => settings.0.entry(path(&above)).or_default().push(plain(value)),
            }
        }
        Ok(settings)
    }
}

fn path(above: &[(usize, Vec<String>)]) -> Vec<String> {
    above.iter().flat_map(|(_, names)| names.iter().cloned()).collect()
}

/// `name: value`, where the name may be quoted.
fn split(line: &str) -> Option<(&str, &str)> {
    let end = match line.strip_prefix(['"', '\'']) {
        Some(quoted) => quoted.find(['"', '\''])? + 2,
        None => 0,
    };
    let colon = end + line[end..].find(':')?;
    let value = &line[colon + 1..];
    (value.is_empty() || value.starts_with(' ')).then_some((&line[..colon], value))
}

fn plain(text: &str) -> String {
    text.trim().trim_matches(['"', '\'']).to_owned()
}

/// A `#` begins a comment at the beginning or after a space, but not within quotes.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '#' && before.is_whitespace() => return &line[..at],
            None => {}
        }
        before = c;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_properties_say_the_same() {
        let yaml = r#"
resilience4j:
  retry:   # of calls
    instances:
      orders:
        max-attempts: 5
        waitDuration: "2s"
        retryExceptions:
        - java.io.IOException
        - java.util.concurrent.TimeoutException
        ignoreExceptions: [com.example.NotFound, 'com.example.Refused']
server.port: 8080
"#;
        let properties = "\
# of calls
resilience4j.retry.instances.orders.max-attempts=5
resilience4j.retry.instances.orders.waitDuration = 2s
resilience4j.retry.instances.orders.retryExceptions[0]=java.io.IOException
resilience4j.retry.instances.orders.retryExceptions[1]=java.util.concurrent.TimeoutException
resilience4j.retry.instances.orders.ignoreExceptions=com.example.NotFound,com.example.Refused
server.port=8080
";
        assert_eq!(Settings::from_yaml(yaml).unwrap(), Settings::from_properties(properties));
    }

    #[test]
    fn what_is_no_setting_is_told_with_its_line() {
        assert!(Settings::from_yaml("a:\n  b c\n").unwrap_err().starts_with("line 2"));
        assert!(Settings::from_yaml("a:\n\tb: 1\n").unwrap_err().contains("tab"));
    }
}
