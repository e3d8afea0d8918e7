//! A small program around an embedded database: `cargo run --example embedded -- DIR`.
//!
//! It keeps a list of notes: makes the table when it is not there, adds a note in a transaction,
//! and prints what there is.

use inkling::{Database, Result, Session};
use std::path::Path;
use std::time::SystemTime;

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "notes.db".to_owned());
    for line in run(Path::new(&dir))? {
        println!("{line}");
    }
    Ok(())
}

/// One run of the program; what it prints.
pub fn run(dir: &Path) -> Result<Vec<String>> {
    let db = Database::open(dir)?;
    let mut session = db.session()?;
    session.batch(
        "create table if not exists note (
             id bigint primary key,
             written timestamptz not null,
             words text not null check (words <> '')
         )",
    )?;
    let id = add(&mut session, "remember the milk")?;
    // A note without words breaks the rule of the table, so nothing of it stays.
    let refused = add(&mut session, "").expect_err("the table refuses it");
    let mut lines = vec![format!("note {id} added; refused: {}", refused.state.code())];
    for row in session.query("select id, words, written from note order by id", &[])? {
        let (id, words): (i64, String) = (row.get("id")?, row.get("words")?);
        let written: SystemTime = row.get("written")?;
        let fresh = written.elapsed().is_ok_and(|age| age.as_secs() < 3600);
        lines.push(format!("{id}: {words}{}", if fresh { " (new)" } else { "" }));
    }
    drop(session);
    db.close()?;
    Ok(lines)
}

fn add(session: &mut Session, words: &str) -> Result<i64> {
    let mut tx = session.transaction()?;
    let next = "select coalesce(max(id), 0) + 1 from note";
    let id: i64 = tx.query_one(next, &[])?.get(0)?;
    let insert = "insert into note values ($1, $2, $3)";
    tx.execute(insert, &[&id, &SystemTime::now(), &words])?;
    tx.commit()?;
    Ok(id)
}
