//! Interleavings of sessions: each `specs/NAME.spec` against `specs/NAME.out`.
//!
//! `INKLING_BLESS=1` rewrites the outputs; the difference is to be read. `INKLING_SPEC=part` runs
//! those whose name contains the part.

#[path = "interleavings/oracle.rs"]
mod oracle;
#[path = "interleavings/random.rs"]
mod random;
#[path = "interleavings/run.rs"]
mod run;
#[path = "interleavings/spec.rs"]
mod spec;

use oracle::Oracle;
use run::{Bench, Outcome};
use spec::{Check, Spec};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Further wrong orders that are named.
const ALSO: usize = 3;
/// Snapshot isolation.
const SNAPSHOT: &str = "repeatable read";

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/specs")
}

fn outcomes(bench: &Bench, spec: &Spec, level: &str) -> Vec<Outcome> {
    match spec.orders.as_slice() {
        [] => run::all(bench, spec, level),
        orders => orders.iter().map(|order| run::one(bench, spec, level, order)).collect(),
    }
}

/// What a spec comes to at one level, and how many outcomes no serial order has.
fn judge(bench: &Bench, spec: &Spec, level: &str, out: &mut String) -> usize {
    let all = outcomes(bench, spec, level);
    let show = |out: &mut String, o: &Outcome| {
        let _ = writeln!(out, "\norder {}", o.order_text(spec));
        out.push_str(&o.transcript);
        if !o.last.is_empty() {
            let _ = writeln!(out, "final: {}", o.last.join(" "));
        }
    };
    if spec.check == Check::Show {
        all.iter().for_each(|o| show(out, o));
        return 0;
    }
    let mut oracle = Oracle::new(bench, spec, level);
    let wrong: Vec<&Outcome> = all.iter().filter(|o| !oracle.is_serializable(o)).collect();
    let aborted = |o: &Outcome| o.committed.iter().filter(|c| !**c).count();
    let in_all: usize = all.iter().map(aborted).sum();
    let _ = write!(
        out,
        "\n{} interleavings, {} not serializable, {in_all} transactions aborted",
        all.len(),
        wrong.len()
    );
    if level == "serializable" {
        // What snapshot isolation refuses anyway, and one more where that is not enough.
        let mut below = Oracle::new(bench, spec, SNAPSHOT);
        let needless = all.iter().map(|o| {
            let same = run::follow(bench, spec, SNAPSHOT, &o.order);
            let required = aborted(&same) + usize::from(!below.is_serializable(&same));
            aborted(o).saturating_sub(required)
        });
        let _ = write!(out, ", {} of them needlessly", needless.sum::<usize>());
    }
    out.push('\n');
    for (at, o) in wrong.iter().enumerate() {
        match at {
            0 => show(out, o),
            1..=ALSO => {
                let _ = writeln!(out, "also {}", o.order_text(spec));
            }
            _ => {}
        }
    }
    assert!(level != "serializable" || wrong.is_empty(), "not serializable:\n{out}");
    wrong.len()
}

fn run_spec(bench: &Bench, text: &str) -> (String, usize) {
    let spec = Spec::parse(text).expect("a spec");
    let mut out = String::new();
    let mut wrong = 0;
    let levels = match spec.levels.is_empty() {
        true => vec!["read committed".to_owned()],
        false => spec.levels.clone(),
    };
    for level in &levels {
        if !spec.levels.is_empty() {
            let _ = writeln!(out, "\n== {level}");
        }
        wrong += judge(bench, &spec, level, &mut out);
    }
    (out.trim_start().to_owned(), wrong)
}

#[test]
fn specs_come_out_as_written_beside_them() {
    let bless = std::env::var_os("INKLING_BLESS").is_some();
    let part = std::env::var("INKLING_SPEC").unwrap_or_default();
    let bench = Bench::new();
    let mut wrong = Vec::new();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(specs())
        .expect("the specs")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|e| e == "spec"))
        .filter(|path| path.to_string_lossy().contains(&part))
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in &paths {
        let text = std::fs::read_to_string(path).expect("a spec");
        println!("{}", path.display());
        let (out, _) = run_spec(&bench, &text);
        let golden = path.with_extension("out");
        if bless {
            std::fs::write(&golden, &out).expect("written");
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != out {
            wrong.push(format!("--- {}\n{out}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "came out otherwise:\n{}", wrong.join("\n"));
}

/// Two sessions that read `read` and then write `write`, each its own half.
fn planted(read: &str, writes: [&str; 2]) -> String {
    let session = |name: &str, write: &str| {
        format!(
            "session {name}\n  begin: begin isolation level {{level}}\n  read: {read}\n  \
             write: {write}\n  end: commit\n"
        )
    };
    format!(
        "levels repeatable read\nsetup\n  create table t (id int primary key, v int);\n  \
         insert into t values (1, 10), (2, 10);\nteardown\n  drop table t;\n{}{}\
         final select * from t order by id\ncheck serializable\n",
        session("a", writes[0]),
        session("b", writes[1])
    )
}

#[test]
fn the_oracle_finds_a_planted_write_skew_and_no_more() {
    let bench = Bench::new();
    let skew = planted(
        "select sum(v) from t",
        ["update t set v = v - 10 where id = 1", "update t set v = v - 10 where id = 2"],
    );
    let (out, wrong) = run_spec(&bench, &skew);
    assert!(wrong > 0, "{out}");
    // Each reads only what it writes: whatever the order, it is as if one came after the other.
    let apart = planted(
        "select 1",
        [
            "update t set v = v - 10 where id = 1 returning v",
            "update t set v = v - 10 where id = 2 returning v",
        ],
    );
    let (out, wrong) = run_spec(&bench, &apart);
    assert_eq!(wrong, 0, "{out}");
}

/// Small random transactions over a small table, all SERIALIZABLE, in random orders.
#[test]
fn random_serializable_transactions_have_a_serial_order() {
    let bench = Bench::new();
    let (from, count) = random::seeds();
    let (mut committed, mut ended, mut skewed) = (0, 0, 0);
    for seed in from..from + count {
        let (text, mut rng) = random::spec(seed);
        let spec = Spec::parse(&text).expect("a spec");
        let mut oracle = Oracle::new(&bench, &spec, "serializable");
        let mut below = Oracle::new(&bench, &spec, SNAPSHOT);
        for _ in 0..random::ORDERS {
            let o = run::some(&bench, &spec, "serializable", &mut |n| rng.below(n));
            assert!(
                oracle.is_serializable(&o),
                "INKLING_SSI_SEED={seed} has no serial order\n{text}\n{}\nfinal: {}",
                o.transcript,
                o.last.join(" ")
            );
            committed += o.committed.iter().filter(|c| **c).count();
            ended += o.committed.len();
            if skewed == 0 {
                let same = run::follow(&bench, &spec, SNAPSHOT, &o.order);
                skewed += usize::from(!below.is_serializable(&same));
            }
        }
    }
    println!("{committed} of {ended} transactions committed");
    assert!(committed * 2 > ended, "{committed} of {ended} committed: too few to mean much");
    assert!(skewed > 0 || count < 10, "snapshot isolation would have done: nothing was tested");
}

#[test]
fn the_oracle_finds_a_planted_lost_update() {
    let bench = Bench::new();
    let lost = planted(
        "select v from t where id = 1",
        ["update t set v = 11 where id = 1", "update t set v = 12 where id = 1"],
    );
    // REPEATABLE READ refuses the second; READ COMMITTED loses the first.
    let (out, wrong) = run_spec(&bench, &lost);
    assert_eq!(wrong, 0, "{out}");
    let (out, wrong) = run_spec(&bench, &lost.replacen("repeatable read", "read committed", 1));
    assert!(wrong > 0, "{out}");
}
