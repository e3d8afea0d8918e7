//! Concurrent writers, each with its own connection, and a record of everything that a server
//! acknowledged: what rate they reached, what a commit took, and what was promised when.
//!
//! ```text
//!   writer 3 of a table:  insert (3, 1)  ack   insert (3, 2)  ack   insert (3, 3)  ---- killed
//!                                        ^ t1                 ^ t2
//! ```
//!
//! A row is its writer's number and a count, so that afterwards the server's contents can be
//! compared with what was acknowledged, row by row.

use crate::LabError;
use crate::client::Client;
use crate::server::Server;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One group of writers to one table.
#[derive(Clone, Debug)]
pub struct Writers<'a> {
    /// `(writer bigint, n bigint)`.
    pub table: &'a str,
    /// What each connection sets first, if anything.
    pub session: &'a str,
    pub connections: usize,
    /// Time from one row to the next; `None`: at once.
    pub pause: Option<Duration>,
}

/// What one writer was told.
#[derive(Debug, Default)]
pub struct Told {
    /// When row `n + 1` was acknowledged.
    pub acknowledged: Vec<Instant>,
    /// What each took.
    pub latencies_ms: Vec<f64>,
    /// Why it ended before it was asked to.
    pub failure: Option<LabError>,
}

/// What a group of writers did.
#[derive(Debug)]
pub struct Written {
    pub writers: Vec<Told>,
    pub time: Duration,
}

impl Written {
    pub fn rows(&self) -> usize {
        self.writers.iter().map(|w| w.acknowledged.len()).sum()
    }

    /// Rows a second.
    pub fn rate(&self) -> f64 {
        self.rows() as f64 / self.time.as_secs_f64().max(1e-9)
    }

    pub fn latencies_ms(&self) -> Vec<f64> {
        self.writers.iter().flat_map(|w| w.latencies_ms.iter().copied()).collect()
    }
}

/// Groups of writers that are connected and have not begun: a connection takes longer than many
/// rows.
pub struct Team<'a> {
    groups: &'a [Writers<'a>],
    clients: Vec<(usize, usize, Client)>,
}

impl<'a> Team<'a> {
    pub fn connect(server: &Server, groups: &'a [Writers<'a>]) -> Result<Team<'a>, LabError> {
        let mut clients = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            for number in 0..group.connections {
                let mut client = server.connect()?;
                if !group.session.is_empty() {
                    client.execute(group.session)?;
                }
                clients.push((at, number, client));
            }
        }
        Ok(Team { groups, clients })
    }

    /// All write at once for `time`, group by group in the answer; an error if any was refused.
    pub fn write(self, time: Duration) -> Result<Vec<Written>, LabError> {
        let (mut written, ()) = self.write_until(time, || Ok(()))?;
        let mut writers = written.iter_mut().flat_map(|group| &mut group.writers);
        match writers.find_map(|writer| writer.failure.take()) {
            Some(failure) => Err(failure),
            None => Ok(written),
        }
    }

    /// All write until `end` was called, in the middle of it, after `time`. A writer that loses its
    /// server ends, and says why.
    pub fn write_until<T>(
        self,
        time: Duration,
        end: impl FnOnce() -> Result<T, LabError>,
    ) -> Result<(Vec<Written>, T), LabError> {
        let stop = &AtomicBool::new(false);
        let ready = &Barrier::new(self.clients.len() + 1);
        let groups = self.groups;
        thread::scope(|scope| {
            let begin = |(at, number, client): (usize, usize, Client)| {
                let body = move || {
                    ready.wait();
                    insert(client, &groups[at], number, stop)
                };
                (at, scope.spawn(body))
            };
            let threads: Vec<_> = self.clients.into_iter().map(begin).collect();
            ready.wait();
            let begun = Instant::now();
            wait(time);
            let outcome = end();
            let time = begun.elapsed();
            stop.store(true, Ordering::Relaxed);
            let mut written: Vec<Written> =
                groups.iter().map(|_| Written { writers: Vec::new(), time }).collect();
            for (at, thread) in threads {
                let told = thread.join();
                let told = told.map_err(|_| LabError::Engine("a writer panicked".to_owned()))?;
                written[at].writers.push(told);
            }
            Ok((written, outcome?))
        })
    }
}

/// Waits, in pieces, so that an interrupted run ends soon.
fn wait(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time && crate::process::check_interrupted().is_ok() {
        thread::sleep((time - begun.elapsed().min(time)).min(Duration::from_millis(50)));
    }
}

/// One writer, until it is stopped or its server goes.
fn insert(mut client: Client, group: &Writers<'_>, number: usize, stop: &AtomicBool) -> Told {
    let mut told = Told::default();
    let sql = format!("insert into {} values ($1, $2)", group.table);
    let prepared = match client.prepare(&sql) {
        Ok(prepared) => prepared,
        Err(failure) => return Told { failure: Some(failure), ..told },
    };
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if let Some(pause) = group.pause {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            // Time lost is lost: that is what shows.
            next = (next + pause).max(Instant::now());
        }
        let begun = Instant::now();
        let n = told.acknowledged.len() as i64 + 1;
        if let Err(failure) = client.run(&prepared, &[number as i64, n]) {
            return Told { failure: Some(failure), ..told };
        }
        told.acknowledged.push(Instant::now());
        told.latencies_ms.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    told
}
