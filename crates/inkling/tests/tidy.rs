//! House rules, checked as a test: what a reviewer would otherwise have to say every time.
//!
//! | rule                                                        | why                     |
//! |-------------------------------------------------------------|-------------------------|
//! | files have at most 1,000 lines, functions at most 70         | a screen, and memory    |
//! | lines have at most 100 columns (long literals excepted)     | side-by-side reading    |
//! | nothing unfinished is left, no test is ignored              | finish or refuse        |
//! | no `.unwrap()` outside tests                                | errors are values       |
//! | `unsafe` only in the listed files                           | few places to audit     |
//! | every source file opens with a `//!` essay                  | a newcomer's question   |
//! | every storage directory has a README                        | rules that can be cited |
//! | the tests that docs/invariants.md names are there           | a table that is true    |

use std::fs;
use std::path::{Path, PathBuf};

const MAX_FILE_LINES: usize = 1000;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_COLUMNS: usize = 100;

/// The files that may contain `unsafe`, each block with its safety argument.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/storage/src/sync.rs",
    // One system call that the safe wrappers lack.
    "crates/storage/src/vfs/write_back.rs",
    // Files mapped read-only.
    "crates/storage/src/vfs/map.rs",
    "crates/storage/src/buffer/frames.rs",
    "crates/storage/src/txn/window.rs",
    "crates/storage/src/wal/ring.rs",
    // The grammar's C interface; the crate's own wrapper loses error positions.
    "crates/sql/src/analyze/parse.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust_files() -> Vec<(String, String)> {
    fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("a source directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                out.push(path);
            }
        }
    }
    let (root, mut paths) = (root(), Vec::new());
    walk(&root.join("crates"), &mut paths);
    paths.sort();
    assert!(paths.len() > 50, "the walk found the workspace");
    let name = |p: &Path| {
        p.strip_prefix(&root).expect("below the root").to_string_lossy().replace('\\', "/")
    };
    paths.iter().map(|p| (name(p), fs::read_to_string(p).expect("UTF-8 source"))).collect()
}

/// Whether the file is a test, or a module of tests.
fn is_test_file(name: &str) -> bool {
    name.contains("/tests/")
        || name.ends_with("tests.rs")
        || name.contains("/benches/")
        || name.contains("/examples/")
        || name.contains("/testing")
}

/// The part of a file before its in-file tests.
fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}

#[test]
fn files_stay_short() {
    let mut long = Vec::new();
    for (name, text) in rust_files() {
        let lines = without_tests(&text).lines().count();
        if lines > MAX_FILE_LINES {
            long.push(format!("{name}: {lines} lines; split off the second concern"));
        }
    }
    assert!(long.is_empty(), "\n{}", long.join("\n"));
}

/// (name, first line, length) of each function, by the indentation that rustfmt guarantees.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let code = line.trim_start();
        let is_fn = code.split("fn ").next().is_some_and(|head| {
            code.contains("fn ")
                && head.split_whitespace().all(|w| {
                    matches!(w, "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"")
                        || w.starts_with("pub(")
                        || w.ends_with(')')
                })
        });
        let in_macro = code.contains("fn $");
        if !is_fn || in_macro || code.ends_with(';') || code.ends_with('}') {
            continue;
        }
        let close = format!("{}}}", " ".repeat(indent));
        let Some(length) = lines[at..].iter().position(|l| *l == close) else { continue };
        let name = code.split("fn ").nth(1).unwrap_or(code);
        let name = name.split(['(', '<']).next().unwrap_or(name);
        found.push((name.to_owned(), at + 1, length + 1));
    }
    found
}

#[test]
fn functions_stay_short() {
    let mut long = Vec::new();
    for (name, text) in rust_files() {
        // A test is one story, told from beginning to end.
        let most = if is_test_file(&name) { 100 } else { MAX_FUNCTION_LINES };
        for (function, line, length) in functions(&text) {
            if length > most {
                long.push(format!("{name}:{line}: {function} has {length} lines"));
            }
        }
    }
    assert!(long.is_empty(), "\n{}", long.join("\n"));
}

#[test]
fn function_lengths_are_measured() {
    let text = "impl X {\n    pub fn a(&self) {\n        b();\n    }\n}\nfn c();\nconst fn d() {\n}\nfn e() {}\n";
    let found = functions(text);
    assert_eq!(found, vec![("a".to_owned(), 2, 3), ("d".to_owned(), 7, 2)]);
}

#[test]
fn lines_stay_narrow() {
    let mut wide = Vec::new();
    for (name, text) in rust_files() {
        if is_test_file(&name) {
            // Golden dumps are as wide as they are.
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            // Tables of facts keep one row a line; rustfmt leaves long literals alone.
            let literal = line.contains('"');
            if line.chars().count() > MAX_COLUMNS && !literal && !line.contains("http") {
                wide.push(format!("{name}:{}: {} columns", at + 1, line.chars().count()));
            }
        }
    }
    assert!(wide.is_empty(), "\n{}", wide.join("\n"));
}

/// (what, why it is not wanted).
fn leftovers() -> Vec<(String, &'static str)> {
    // Spelled in halves, so that this file does not find itself.
    let word = |a: &str, b: &str| format!("{a}{b}");
    vec![
        (word("todo", "!("), "finish it, or refuse it by name with 0A000"),
        (word("unimplemented", "!("), "finish it, or refuse it by name with 0A000"),
        (word("dbg", "!("), "use tracing or an assertion message"),
        (word("FIX", "ME"), "mend it, or write down the limit in docs/"),
        (word("XX", "X:"), "mend it, or write down the limit in docs/"),
        (word("TO", "DO"), "do it, or write down the limit in docs/"),
        (word("#[ign", "ore"), "a test that does not run shows nothing"),
        (word("assert!(tr", "ue)"), "a test that cannot fail shows nothing"),
    ]
}

#[test]
fn nothing_is_left_behind() {
    let mut left = Vec::new();
    for (name, text) in rust_files() {
        for (at, line) in text.lines().enumerate() {
            for (what, instead) in leftovers() {
                if line.contains(&what) {
                    left.push(format!("{name}:{}: {what}: {instead}", at + 1));
                }
            }
        }
    }
    assert!(left.is_empty(), "\n{}", left.join("\n"));
}

#[test]
fn errors_are_values_not_panics() {
    let mut panics = Vec::new();
    for (name, text) in rust_files() {
        if is_test_file(&name) {
            continue;
        }
        for (at, line) in without_tests(&text).lines().enumerate() {
            if line.contains(".unwrap()") && !line.trim_start().starts_with("//") {
                panics
                    .push(format!("{name}:{}: return an error, or expect() the invariant", at + 1));
            }
        }
    }
    assert!(panics.is_empty(), "\n{}", panics.join("\n"));
}

#[test]
fn unsafe_stays_where_it_is_audited() {
    let mut stray = Vec::new();
    for (name, text) in rust_files() {
        let listed = UNSAFE_ALLOWED.contains(&name.as_str());
        let word = ["unsafe ", "{"].concat();
        let function = ["unsafe ", "fn"].concat();
        let implementation = ["unsafe ", "impl"].concat();
        for (at, line) in text.lines().enumerate() {
            let found =
                [&word, &function, &implementation].iter().any(|w| line.contains(w.as_str()));
            if found && !listed {
                stray.push(format!("{name}:{}: unsafe outside the listed files", at + 1));
            }
        }
    }
    assert!(stray.is_empty(), "\n{}", stray.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let missing: Vec<String> = rust_files()
        .into_iter()
        .filter(|(_, text)| !text.trim_start().starts_with("//!"))
        .map(|(name, _)| name)
        .collect();
    assert!(missing.is_empty(), "no //! at the top of:\n{}", missing.join("\n"));
}

#[test]
fn every_storage_directory_has_a_readme() {
    let storage = root().join("crates/storage/src");
    let mut missing = Vec::new();
    for entry in fs::read_dir(&storage).expect("the storage crate").flatten() {
        if entry.path().is_dir() && !entry.path().join("README.md").exists() {
            missing.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    assert!(missing.is_empty(), "no README.md in storage/{}", missing.join(", storage/"));
}

#[test]
fn documents_have_one_title() {
    let mut bad = Vec::new();
    for dir in ["", "docs", "crates/storage/src"] {
        for entry in fs::read_dir(root().join(dir)).expect("a documentation directory").flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == "md") {
                let text = fs::read_to_string(&path).expect("UTF-8 text");
                let titles = text.lines().filter(|l| l.starts_with("# ")).count();
                if !text.starts_with("# ") || (titles != 1 && !text.contains("```")) {
                    bad.push(path.display().to_string());
                }
            }
        }
    }
    assert!(bad.is_empty(), "not opened by exactly one title:\n{}", bad.join("\n"));
}

/// How many statements docs/invariants.md makes.
const INVARIANTS: usize = 66;

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A path as docs/invariants.md gives it, whole.
fn below_crates(path: &str) -> Option<PathBuf> {
    let crates = root().join("crates");
    [crates.join(path), crates.join("storage/src").join(path)].into_iter().find(|p| p.exists())
}

/// What is wrong with the tests that a row names: `path.rs`: `function`, ...; `NAME.spec`, ...
fn missing_tests(cell: &str) -> Vec<String> {
    let (mut missing, mut source, mut named) = (Vec::new(), String::new(), 0);
    for word in quoted(cell) {
        let found = if word.ends_with(".spec") {
            named += 1;
            root().join("crates/inkling/tests/specs").join(word).exists()
        } else if word.contains('/') {
            let path = below_crates(word);
            if let Some(path) = path.as_ref().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
                source = fs::read_to_string(path).expect("UTF-8 source");
            }
            path.is_some()
        } else {
            named += 1;
            source.contains(&format!("fn {word}("))
        };
        if !found {
            missing.push(format!("{word} is not there"));
        }
    }
    if named == 0
        && !["none yet", "by construction", "does not apply"].iter().any(|w| cell.contains(w))
    {
        missing.push("names no test, and does not say why".to_owned());
    }
    missing
}

#[test]
fn invariants_name_tests_that_exist() {
    let text = fs::read_to_string(root().join("docs/invariants.md")).expect("the document");
    let (mut wrong, mut numbers) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let Some(number) = cells.first().and_then(|c| c.parse::<usize>().ok()) else { continue };
        numbers.push(number);
        let [_, _, kept, tests] = cells[..] else {
            wrong.push(format!("{number}: {} columns", cells.len()));
            continue;
        };
        let gone = quoted(kept).filter(|w| w.contains('/') && below_crates(w).is_none());
        wrong.extend(gone.map(|path| format!("{number}: {path} is not there")));
        wrong.extend(missing_tests(tests).into_iter().map(|what| format!("{number}: {what}")));
    }
    assert_eq!(numbers, (1..=INVARIANTS).collect::<Vec<_>>(), "each number once, in order");
    assert!(wrong.is_empty(), "docs/invariants.md\n{}", wrong.join("\n"));
}

#[test]
fn a_missing_test_is_noticed() {
    let here = "`inkling/tests/tidy.rs`: `a_missing_test_is_noticed`";
    assert!(missing_tests(here).is_empty());
    for (cell, wrong) in [
        ("`inkling/tests/tidy.rs`: `no_such_test`", "no_such_test"),
        ("`a_missing_test_is_noticed`", "a_missing_test_is_noticed"),
        ("`inkling/tests/no_such_file.rs`", "no_such_file"),
        ("`no-such.spec`", "no-such.spec"),
        ("some day", "names no test"),
    ] {
        let found = missing_tests(cell);
        assert!(found.iter().any(|what| what.contains(wrong)), "{cell}: {found:?}");
    }
}
