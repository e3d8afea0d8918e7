//! Running a spec: one thread drives all sessions, so that an order is an order.
//!
//! A step that has to wait answers with a handle instead of blocking. It is left there, shown as
//! `<waiting>`, and looked at again after every other step; when its handle is woken it goes on.
//! Deadlocks are looked for as soon as a step waits, not after a time: the step that closes a
//! cycle is the one examined.

use crate::spec::Spec;
use inkling::{Database, Options};
use inkling_sql::analyze::statement::ParamTypes;
use inkling_sql::error::{Result, SqlError};
use inkling_sql::functions::FnContext;
use inkling_sql::session::{
    ColumnDesc, CommandTag, CopyInfo, Progress, RowSink, Session, SessionParams,
};
use inkling_sql::types::{Datum, TypeRef, io};
use inkling_storage::wait::WaitHandle;
use std::fmt::Write;
use std::time::Duration;

/// One database for all specs, and what it takes to make sessions.
pub struct Bench {
    database: Database,
    next_pid: std::cell::Cell<i32>,
    _dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        let dir = tempfile::Builder::new().prefix("inkling-specs-").tempdir().expect("a directory");
        // The runner looks for deadlocks itself.
        let options = Options::new()
            .set("deadlock_timeout", "1h")
            .and_then(|options| options.set("max_prepared_transactions", "2"))
            // No crash is looked at here.
            .and_then(|options| options.set("fsync", "off"))
            .expect("settings");
        let database = Database::open_with(dir.path().join("data"), options).expect("a database");
        Bench { database, next_pid: std::cell::Cell::new(1000), _dir: dir }
    }

    fn session(&self) -> Session {
        self.next_pid.set(self.next_pid.get() + 1);
        let params = SessionParams {
            user: "postgres".to_owned(),
            database: "postgres".to_owned(),
            pid: self.next_pid.get(),
            ..SessionParams::default()
        };
        Session::new(self.database.sql(), params).expect("a session")
    }

    /// Runs statements that must not fail or wait.
    fn must(&self, sql: &str) -> Vec<String> {
        let mut player = Player::new(self.session());
        match player.send(sql) {
            Some(answer) => {
                assert!(!answer.failed, "{sql}\n{:?}", answer.lines);
                answer.lines
            }
            None => panic!("has to wait: {sql}"),
        }
    }
}

/// What a step came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub lines: Vec<String>,
    pub failed: bool,
}

/// One session with the message that it is at.
struct Player {
    session: Session,
    left: Vec<inkling_sql::analyze::ParsedStatement>,
    sink: Shown,
    waits: Option<WaitHandle>,
    /// The last transaction to end was committed.
    committed: bool,
    aborted: bool,
}

impl Player {
    fn new(session: Session) -> Player {
        let sink = Shown::default();
        Player { session, left: Vec::new(), sink, waits: None, committed: false, aborted: false }
    }

    /// Sends a simple query message; `None`: it has to wait.
    fn send(&mut self, sql: &str) -> Option<Answer> {
        self.session.begin_message();
        self.sink = Shown::default();
        match self.session.parse_statements(sql) {
            Ok(statements) => self.left = statements.into_iter().rev().collect(),
            Err(e) => return Some(self.failed(&e)),
        }
        self.next_statement()
    }

    fn next_statement(&mut self) -> Option<Answer> {
        while let Some(statement) = self.left.pop() {
            let bound = self.session.prepare_parsed(Some(statement), ParamTypes::none()).and_then(
                |prepared| {
                    self.session.close_portal("");
                    self.session.bind("", prepared, Vec::new())
                },
            );
            match bound.and_then(|()| self.steps()) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(e) => return Some(self.failed(&e)),
            }
        }
        match self.session.finish_implicit() {
            Ok(()) => Some(self.answer(false)),
            Err(e) => Some(self.failed(&e)),
        }
    }

    /// Steps the statement; false when it has to wait.
    fn steps(&mut self) -> Result<bool> {
        loop {
            match self.session.step("", &mut self.sink, 0)? {
                Progress::Wait(handle) if handle.is_ready() => {}
                Progress::Wait(handle) => {
                    self.waits = Some(handle);
                    return Ok(false);
                }
                Progress::Complete(tag) => {
                    self.note(tag);
                    return Ok(true);
                }
                Progress::FlushRows => {}
                Progress::Suspended | Progress::CopyIn(_) => {
                    return Err(SqlError::internal("not a statement for a spec"));
                }
            }
        }
    }

    fn note(&mut self, tag: CommandTag) {
        match tag.to_string().as_str() {
            "COMMIT" => (self.committed, self.aborted) = (true, false),
            "ROLLBACK" => (self.committed, self.aborted) = (false, true),
            _ => {}
        }
        if self.sink.columns.is_empty() || !tag.to_string().starts_with("SELECT") {
            self.sink.lines.push(tag.to_string());
        } else if tag == CommandTag::Select(0) {
            self.sink.lines.push("no rows".to_owned());
        }
        self.sink.columns.clear();
    }

    /// Goes on after a wait, if there is something to go on with.
    fn resume(&mut self) -> Option<Answer> {
        if !self.waits.as_ref().is_some_and(WaitHandle::is_ready) {
            return None;
        }
        self.waits = None;
        match self.steps() {
            Ok(true) => self.next_statement(),
            Ok(false) => None,
            Err(e) => Some(self.failed(&e)),
        }
    }

    fn failed(&mut self, e: &SqlError) -> Answer {
        self.left.clear();
        self.session.statement_failed();
        self.aborted = true;
        self.committed = false;
        self.sink.lines.push(format!("ERROR {}: {}", e.state.code(), e.message()));
        self.answer(true)
    }

    fn answer(&mut self, failed: bool) -> Answer {
        for notice in self.session.take_notices() {
            self.sink.lines.push(format!("{}: {}", notice.severity.as_str(), notice.message()));
        }
        Answer { lines: std::mem::take(&mut self.sink.lines), failed }
    }
}

/// Rows as text.
#[derive(Default)]
struct Shown {
    lines: Vec<String>,
    columns: Vec<ColumnDesc>,
}

impl RowSink for Shown {
    fn row(&mut self, values: &[Datum], types: &[TypeRef], cx: &dyn FnContext) -> Result<()> {
        let shown = values.iter().zip(types).map(|(v, ty)| match v {
            Datum::Null => "null".to_owned(),
            v => io::to_text(v, ty.oid, cx).to_string(),
        });
        let row = shown.collect::<Vec<_>>().join(" | ");
        self.lines.push(format!("({row})"));
        if self.columns.is_empty() {
            self.columns = vec![ColumnDesc {
                name: String::new(),
                ty: types[0],
                table: inkling_sql::types::Oid::INVALID,
                attnum: 0,
            }];
        }
        Ok(())
    }
    fn copy_out_begin(&mut self, _info: CopyInfo) -> Result<()> {
        Ok(())
    }
    fn copy_data(&mut self, _data: &[u8]) -> Result<()> {
        Ok(())
    }
    fn full(&self) -> bool {
        false
    }
    fn columns(&mut self, columns: &[ColumnDesc]) -> Result<()> {
        self.columns = columns.to_vec();
        Ok(())
    }
    fn notice(&mut self, _notice: SqlError) {}
}

/// One order, run.
pub struct Outcome {
    /// Which step ran at each point, as (session, step).
    pub order: Vec<(usize, usize)>,
    /// What happened, readable.
    pub transcript: String,
    /// Each session's answers.
    pub answers: Vec<Vec<Answer>>,
    pub committed: Vec<bool>,
    pub last: Vec<String>,
    /// At each point, the sessions that could have gone.
    choices: Vec<Vec<usize>>,
}

impl Outcome {
    pub fn order_text(&self, spec: &Spec) -> String {
        let names = self.order.iter().map(|(actor, step)| {
            let a = &spec.actors[*actor];
            format!("{}.{}", a.name, a.steps[*step].name)
        });
        names.collect::<Vec<_>>().join(" ")
    }
}

struct Run<'a> {
    bench: &'a Bench,
    spec: &'a Spec,
    level: &'a str,
    players: Vec<Player>,
    /// The step after the last one of each.
    next: Vec<usize>,
    outcome: Outcome,
}

impl Run<'_> {
    /// The step that the session is at.
    fn label(&self, actor: usize) -> String {
        let a = &self.spec.actors[actor];
        format!("{}.{}", a.name, a.steps[self.next[actor] - 1].name)
    }

    fn can_go(&self) -> Vec<usize> {
        let all = 0..self.players.len();
        all.filter(|a| {
            self.players[*a].waits.is_none() && self.next[*a] < self.spec.actors[*a].steps.len()
        })
        .collect()
    }

    fn go(&mut self, actor: usize, step: usize) {
        let sql = self.spec.actors[actor].steps[step].sql.replace("{level}", self.level);
        self.next[actor] = step + 1;
        let label = self.label(actor);
        self.outcome.order.push((actor, step));
        match self.players[actor].send(&sql) {
            Some(answer) => self.write(&format!("{label}: {sql}"), actor, answer),
            None => {
                let _ = writeln!(self.outcome.transcript, "{label}: {sql}  <waiting>");
            }
        }
        self.settle();
    }

    fn write(&mut self, head: &str, actor: usize, answer: Answer) {
        let out = &mut self.outcome.transcript;
        match answer.lines.as_slice() {
            [one] => {
                let _ = writeln!(out, "{head}  -> {one}");
            }
            lines => {
                let _ = writeln!(out, "{head}");
                for line in lines {
                    let _ = writeln!(out, "    {line}");
                }
            }
        }
        self.outcome.answers[actor].push(answer);
    }

    /// Lets everybody go on who can; breaks deadlocks.
    fn settle(&mut self) {
        loop {
            self.bench.database.engine().locks.run_deadlock_check(Duration::ZERO);
            let mut moved = false;
            for actor in 0..self.players.len() {
                if self.players[actor].waits.as_ref().is_some_and(WaitHandle::is_ready) {
                    moved = true;
                    if let Some(answer) = self.players[actor].resume() {
                        let head = format!("{}: <goes on>", self.label(actor));
                        self.write(&head, actor, answer);
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }
}

/// Which session goes next: of those that can, at this point of the order.
type Choice<'c> = dyn FnMut(&[usize], &[usize], usize) -> Option<(usize, usize)> + 'c;

/// Runs one order. `wanted` gives its beginning; from there on the first session that can goes.
fn play(
    bench: &Bench,
    spec: &Spec,
    level: &str,
    wanted: &[(usize, usize)],
    exact: bool,
) -> Outcome {
    choose(bench, spec, level, &mut |can, next, at| match wanted.get(at) {
        Some(step) => Some(*step),
        None if exact => None,
        None => can.first().map(|first| (*first, next[*first])),
    })
}

/// Runs the order that `choice` makes up; it is given who can go, and the next step of each.
fn choose(bench: &Bench, spec: &Spec, level: &str, choice: &mut Choice<'_>) -> Outcome {
    bench.must(&spec.setup);
    let actors = spec.actors.len();
    let mut run = Run {
        bench,
        spec,
        level,
        players: (0..actors).map(|_| Player::new(bench.session())).collect(),
        next: vec![0; actors],
        outcome: Outcome {
            order: Vec::new(),
            transcript: String::new(),
            answers: vec![Vec::new(); actors],
            committed: Vec::new(),
            last: Vec::new(),
            choices: Vec::new(),
        },
    };
    loop {
        let can = run.can_go();
        let at = run.outcome.order.len();
        let Some(chosen) = choice(&can, &run.next, at) else { break };
        if run.players[chosen.0].waits.is_some() {
            panic!("{} cannot go on:\n{}", spec.actors[chosen.0].name, run.outcome.transcript)
        }
        run.outcome.choices.push(can);
        run.go(chosen.0, chosen.1);
    }
    let stuck = run.players.iter().position(|p| p.waits.is_some());
    assert!(stuck.is_none(), "{stuck:?} waits for ever:\n{}", run.outcome.transcript);
    let Run { players, mut outcome, .. } = run;
    outcome.committed = players.iter().map(|p| p.committed && !p.aborted).collect();
    drop(players);
    if let Some(last) = &spec.last {
        outcome.last = bench.must(last);
    }
    bench.must(&spec.teardown);
    outcome
}

/// One given order.
pub fn one(bench: &Bench, spec: &Spec, level: &str, order: &[(usize, usize)]) -> Outcome {
    play(bench, spec, level, order, true)
}

/// An order at another level, as far as it goes there: who has to wait goes when it can.
pub fn follow(bench: &Bench, spec: &Spec, level: &str, order: &[(usize, usize)]) -> Outcome {
    let mut left = order.to_vec();
    choose(bench, spec, level, &mut |can, next, _| {
        let possible =
            |(actor, step): &(usize, usize)| can.contains(actor) && next[*actor] == *step;
        let at = left.iter().position(possible)?;
        Some(left.remove(at))
    })
}

/// Some interleaving: `pick` says which of so many sessions goes next.
pub fn some(
    bench: &Bench,
    spec: &Spec,
    level: &str,
    pick: &mut dyn FnMut(usize) -> usize,
) -> Outcome {
    choose(bench, spec, level, &mut |can, next, _| match can {
        [] => None,
        can => {
            let actor = can[pick(can.len())];
            Some((actor, next[actor]))
        }
    })
}

/// Every interleaving that can happen: a session that waits cannot go on.
pub fn all(bench: &Bench, spec: &Spec, level: &str) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut wanted: Vec<(usize, usize)> = Vec::new();
    loop {
        let outcome = play(bench, spec, level, &wanted, false);
        // The last point where another session could have gone.
        let next = outcome.order.iter().zip(&outcome.choices).enumerate().rev().find_map(
            |(at, (chosen, could))| could.iter().find(|c| **c > chosen.0).map(|other| (at, *other)),
        );
        let order = outcome.order.clone();
        outcomes.push(outcome);
        match next {
            Some((at, other)) => {
                wanted = order[..at].to_vec();
                let done = wanted.iter().filter(|(actor, _)| *actor == other).count();
                wanted.push((other, done));
            }
            None => return outcomes,
        }
    }
}
