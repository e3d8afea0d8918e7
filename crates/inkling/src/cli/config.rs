//! Where the server's settings come from, weakest first:
//!
//! ```text
//!   built-in <- PGPORT <- postgresql.conf <- postgresql.auto.conf <- -c name=value <- -h, -p
//! ```
//!
//! A file has one `name = value` a line (the `=` may be missing), `#` comments, and values in
//! single quotes where they contain anything but a word. A name given twice counts the last time.
//! `include` and its kin are refused rather than passed over.

use super::Outcome;
use inkling_sql::settings::{ChangeSource, ServerSettings};
use std::io;
use std::path::Path;

const FILES: [&str; 2] = ["postgresql.conf", "postgresql.auto.conf"];

/// One assignment of a file and its line number.
#[derive(Debug, PartialEq, Eq)]
struct Assignment {
    line: usize,
    name: String,
    value: String,
}

/// The settings for a server on `directory`; `overrides` are the command line's `-c`.
pub fn load(directory: &Path, overrides: &[String]) -> Outcome<ServerSettings> {
    let mut settings = ServerSettings::default();
    if let Ok(port) = std::env::var("PGPORT") {
        set(&mut settings, "port", &port, ChangeSource::CommandLine)
            .map_err(|what| format!("environment variable PGPORT: {what}"))?;
    }
    for file in FILES {
        read_file(&mut settings, &directory.join(file))?;
    }
    for assignment in overrides {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| format!("-c {assignment}: expected name=value"))?;
        set(&mut settings, name.trim(), value.trim(), ChangeSource::CommandLine)?;
    }
    settings.fact("data_directory", directory.display().to_string());
    Ok(settings)
}

fn set(
    settings: &mut ServerSettings,
    name: &str,
    value: &str,
    source: ChangeSource,
) -> Outcome<()> {
    settings.set(name, value, source).map_err(|e| e.message().to_owned())
}

fn read_file(settings: &mut ServerSettings, path: &Path) -> Outcome<()> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(format!("could not read \"{}\": {e}", path.display())),
    };
    let at = |line: usize, what: String| format!("\"{}\" line {line}: {what}", path.display());
    for a in parse(&text).map_err(|(line, what)| at(line, what))? {
        if a.name.starts_with("include") {
            return Err(at(a.line, format!("\"{}\" is not supported", a.name)));
        }
        set(settings, &a.name, &a.value, ChangeSource::ConfigurationFile)
            .map_err(|what| at(a.line, what))?;
    }
    Ok(())
}

fn parse(text: &str) -> Result<Vec<Assignment>, (usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let end = line
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.')))
            .unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let rest = rest.trim_start();
        let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
        let (value, after) =
            value(rest).ok_or((number, "unterminated quoted string".to_owned()))?;
        if name.is_empty() || (value.is_empty() && !rest.starts_with('\'')) {
            return Err((number, format!("syntax error near \"{line}\"")));
        }
        let after = after.trim_start();
        if !after.is_empty() && !after.starts_with('#') {
            return Err((number, format!("syntax error near \"{after}\"")));
        }
        found.push(Assignment { line: number, name: name.to_owned(), value });
    }
    Ok(found)
}

/// A value and what follows it; `None` when a quote is not closed.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('\'') else {
        let end = text.find(|c: char| c.is_whitespace() || c == '#').unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut out = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if chars.peek().is_some_and(|(_, next)| *next == '\'') => {
                chars.next();
                out.push('\'');
            }
            '\'' => return Some((out, &quoted[at + 1..])),
            '\\' => out.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            }),
            other => out.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let parsed = parse(text).expect("a configuration");
        parsed.into_iter().map(|a| (a.name, a.value)).collect()
    }

    #[test]
    fn lines_comments_and_quotes() {
        let text = "# all\n\nport = 5433 # here\nshared_buffers 16MB\nTimeZone='Europe/Vienna'\n\
                    application_name = 'it''s # \\'one\\''\nsearch_path = ''";
        let expected = [
            ("port", "5433"),
            ("shared_buffers", "16MB"),
            ("TimeZone", "Europe/Vienna"),
            ("application_name", "it's # 'one'"),
            ("search_path", ""),
        ];
        let expected: Vec<_> =
            expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(pairs(text), expected);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        assert_eq!(parse("port = 1\nfsync =").expect_err("no value").0, 2);
        assert_eq!(parse("a = 'b").expect_err("open quote").1, "unterminated quoted string");
        assert!(parse("a = b c").is_err());
        let dir = tempfile::tempdir().expect("temporary directory");
        let conf = |text: &str| {
            std::fs::write(dir.path().join("postgresql.conf"), text).expect("write");
            load(dir.path(), &[])
                .map(|s| s.int("checkpoint_timeout"))
                .map_err(|e| e.replace(&dir.path().display().to_string(), "DIR"))
        };
        assert_eq!(conf("checkpoint_timeout = 2min"), Ok(120));
        assert_eq!(
            conf("\nno_such = 1"),
            Err("\"DIR/postgresql.conf\" line 2: \
                 unrecognized configuration parameter \"no_such\""
                .to_owned())
        );
        assert!(conf("include 'other.conf'").is_err());
    }

    #[test]
    fn the_command_line_counts_more_than_the_file() {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::write(dir.path().join("postgresql.conf"), "work_mem = 1MB\n").expect("write");
        std::fs::write(dir.path().join("postgresql.auto.conf"), "work_mem = 2MB\n").expect("write");
        let with = |overrides: &[String]| load(dir.path(), overrides).map(|s| s.int("work_mem"));
        assert_eq!(with(&[]), Ok(2048));
        assert_eq!(with(&["work_mem=3MB".to_owned()]), Ok(3072));
        assert!(with(&["work_mem".to_owned()]).is_err());
    }
}
