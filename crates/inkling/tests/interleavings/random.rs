//! Random specs: a few sessions with small transactions over a small table that has a primary key
//! and another index, so that look-ups, ranges in both directions, whole scans, row addresses,
//! insertions, deletions, key changes, upserts and savepoints meet each other.
//!
//! `INKLING_SSI_SEED=n` runs one seed, `INKLING_SSI_SPECS=n` so many.

use std::fmt::Write;

/// Orders that are tried of each spec.
pub const ORDERS: usize = 6;

/// The first seed and how many.
pub fn seeds() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse().ok());
    match number("INKLING_SSI_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("INKLING_SSI_SPECS").unwrap_or(60)),
    }
}

pub struct Rng(u64);

impl Rng {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

fn statement(rng: &mut Rng, who: usize, at: usize) -> String {
    let k = rng.below(4);
    let (low, v) = (rng.below(50), 100 * (who + 1) + 10 * at);
    let high = low + rng.below(25);
    match rng.below(14) {
        0 | 1 => format!("select k, v from t where k = {k}"),
        2 => format!("select k from t where v between {low} and {high} order by k"),
        3 => format!("select k, v from t where k > {k} order by k desc limit 2"),
        4 => "select count(*), sum(v) from t".to_owned(),
        5 => format!("select k from t where k in ({k}, {}) order by k", rng.below(4)),
        6 => format!("select k, v from t where ctid = (select ctid from t where k = {k})"),
        7 | 8 => format!("update t set v = {v} where k = {k}"),
        9 => format!("update t set w = w + 1 where k = {k} returning w"),
        10 => format!("update t set v = v + 1 where v between {low} and {high}"),
        11 => format!("delete from t where k = {k}"),
        12 => format!("insert into t values ({k}, {}, 0) on conflict do nothing", rng.below(50)),
        _ => format!(
            "insert into t values ({k}, {v}, 0) on conflict (k) do update set v = excluded.v \
             where t.v < 40 returning v"
        ),
    }
}

pub fn spec(seed: u64) -> (String, Rng) {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut text = "setup\n  create table t (k int primary key, v int, w int);\n  \
                    create index t_v on t (v);\n"
        .to_owned();
    let rows = 1 + rng.below(4);
    for k in 0..rows {
        let _ = writeln!(text, "  insert into t values ({k}, {}, 0);", 10 * k);
    }
    text.push_str("teardown\n  drop table t;\n");
    for who in 0..2 + rng.below(3) {
        let _ = writeln!(text, "session s{who}");
        let mode = if rng.below(8) == 0 { " read only" } else { "" };
        let steps = 2 + rng.below(2);
        for at in 0..steps {
            let begin = match at {
                0 => format!("begin isolation level {{level}}{mode}; "),
                _ => String::new(),
            };
            let mut sql = loop {
                let sql = statement(&mut rng, who, at);
                if mode.is_empty() || sql.starts_with("select") {
                    break sql;
                }
            };
            match rng.below(8) {
                0 => sql = format!("savepoint a; {sql}; rollback to a"),
                1 => sql = format!("savepoint a; {sql}; release a"),
                _ => {}
            }
            let _ = writeln!(text, "  step{at}: {begin}{sql}");
        }
        text.push_str("  end: commit\n");
    }
    text.push_str("final select * from t order by k\ncheck serializable\n");
    (text, rng)
}
