//! One connection: start-up, then messages until the client or the server ends it.
//!
//! ```text
//!   socket --read--> input --frames--> Connection::message --+--> Session (synchronous engine)
//!   socket <--write-- output <---------- rows, errors, ... <-+         | Wait(handle)
//!                                                                      '--> await, step again
//! ```
//!
//! - Nothing is written before Sync, Flush, the end of a simple query, or a full buffer; and
//!   before anything is written the session's answer barrier is waited for, so that no client
//!   reads what a crash could still take back.
//! - While a statement waits, the socket is watched: a client that goes away cancels it.
//! - A statement that panics ends its session, not the server.

mod copy;
mod extended;
mod simple;
mod sink;
mod startup;

pub use startup::serve;

use crate::log::{self, Level};
use crate::registry::Registered;
use crate::wire::backend::{self, Out};
use crate::wire::frontend::{self, Formats, Frontend};
use bytes::BytesMut;
use hashbrown::HashMap;
use inkling_sql::error::{Severity, SqlError, State};
use inkling_sql::session::{Activity, CancelReason, Progress, Session};
use inkling_storage::wait::WaitHandle;
use sink::WireSink;
use std::panic::AssertUnwindSafe;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Output is written when it exceeds this.
const OUTPUT_HIGH: usize = 64 << 10;
/// Buffers that grew beyond this are given back when the session idles.
const BUFFER_KEEP: usize = 4 << 10;
/// How often a waiting statement's client is looked at.
const CLIENT_CHECK: Duration = Duration::from_secs(1);

/// Why a connection ends.
enum End {
    /// Terminate, or the socket was closed.
    Client,
    /// To be told the client first.
    Fatal(SqlError),
}

impl From<std::io::Error> for End {
    fn from(_gone: std::io::Error) -> Self {
        End::Client
    }
}

type Flow = Result<(), End>;

/// A portal's result formats, as Bind chose them.
type PortalFormats = HashMap<String, Formats>;

struct Connection {
    stream: TcpStream,
    input: BytesMut,
    out: Out,
    session: Session,
    registered: Registered,
    formats: PortalFormats,
    /// After an error in the extended protocol: everything up to Sync is skipped.
    skipping: bool,
    /// A ReadyForQuery was held back because more messages were here; it goes out when they are
    /// dealt with, whether or not they are answered.
    ready_held: bool,
}

/// Bytes of the first whole message in the input.
enum Next {
    Message(BytesMut),
    End,
}

impl Connection {
    async fn run(&mut self) -> Flow {
        loop {
            let message = match self.next_message().await? {
                Next::Message(m) => m,
                Next::End => return Ok(()),
            };
            let decoded = match frontend::decode(&message) {
                Ok(m) => m,
                Err(e) if self.skipping => {
                    // Unreadable, but to be skipped anyway.
                    let _skipped = e;
                    continue;
                }
                Err(e) => {
                    self.protocol_error(e, message.first().copied()).await?;
                    continue;
                }
            };
            self.message(decoded).await?;
        }
    }

    /// Waits for a whole message. What was answered so far is written when none is there yet.
    async fn next_message(&mut self) -> Result<Next, End> {
        loop {
            match frontend::message_length(&self.input).map_err(fatal)? {
                Some(length) => return Ok(Next::Message(self.input.split_to(length))),
                None => {
                    if std::mem::take(&mut self.ready_held) {
                        self.flush().await?;
                    }
                    if !self.fill().await? {
                        return Ok(Next::End);
                    }
                }
            }
        }
    }

    /// Reads more input; false when the client closed the connection.
    async fn fill(&mut self) -> Result<bool, End> {
        if self.input.is_empty() {
            self.shrink();
        }
        match self.stream.try_read_buf(&mut self.input) {
            Ok(n) => return Ok(n > 0),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
        let cancel = self.registered.cancel.clone();
        let idle = self.session.idle_timeout();
        let read = self.stream.read_buf(&mut self.input);
        let n = match idle {
            None => interruptible(read, &cancel).await?,
            Some(limit) => match tokio::time::timeout(limit, interruptible(read, &cancel)).await {
                Ok(read) => read?,
                Err(_elapsed) => {
                    cancel.request(CancelReason::IdleInTransaction);
                    return Err(End::Fatal(pending_error(&cancel)));
                }
            },
        };
        Ok(n > 0)
    }

    /// An idle connection keeps small buffers.
    fn shrink(&mut self) {
        if self.out.is_empty() && self.out.capacity() > BUFFER_KEEP {
            self.out = Out::new();
        }
        if self.input.is_empty() && self.input.capacity() > BUFFER_KEEP {
            self.input = BytesMut::new();
        }
    }

    async fn message(&mut self, m: Frontend<'_>) -> Flow {
        match m {
            Frontend::Terminate => return Err(End::Client),
            Frontend::Sync => return self.sync().await,
            _ if self.skipping => return Ok(()),
            Frontend::Query(sql) => return self.simple_query(sql).await,
            Frontend::Flush => return self.flush().await,
            Frontend::FunctionCall => {
                let e = SqlError::unsupported("the function call protocol");
                backend::error(&mut self.out, &e);
                return self.ready().await;
            }
            // Sent by a client that has not noticed yet that its COPY failed.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => return Ok(()),
            Frontend::Password(_) => {
                let e = SqlError::new(State::PROTOCOL_VIOLATION, "unexpected password message");
                return Err(End::Fatal(e));
            }
            extended => {
                if let Err(e) = self.extended(extended).await? {
                    self.extended_error(&e);
                }
            }
        }
        if self.out.len() > OUTPUT_HIGH {
            self.flush().await?;
        }
        Ok(())
    }

    /// A message that cannot be read: an error, and for the extended protocol skipping.
    async fn protocol_error(&mut self, e: SqlError, kind: Option<u8>) -> Flow {
        match kind {
            Some(b'Q') => {
                self.session.statement_failed();
                backend::error(&mut self.out, &e);
                self.ready().await
            }
            _ => {
                self.extended_error(&e);
                Ok(())
            }
        }
    }

    fn extended_error(&mut self, e: &SqlError) {
        self.session.statement_failed();
        self.send_notices();
        backend::error(&mut self.out, e);
        self.skipping = true;
    }

    async fn sync(&mut self) -> Flow {
        self.skipping = false;
        if let Err(e) = self.end_implicit().await? {
            self.session.statement_failed();
            backend::error(&mut self.out, &e);
        }
        self.ready().await
    }

    /// Ends an implicit transaction: first what it has put off, which may have to wait for others.
    async fn end_implicit(&mut self) -> Result<Result<(), SqlError>, End> {
        loop {
            match self.session.settle() {
                Ok(None) => return Ok(self.session.finish_implicit()),
                Ok(Some(handle)) => {
                    if let Err(e) = self.wait(handle).await? {
                        return Ok(Err(e));
                    }
                }
                Err(e) => return Ok(Err(e)),
            }
        }
    }

    /// ReadyForQuery, with what has to be told before it, and everything goes out.
    async fn ready(&mut self) -> Flow {
        self.send_notices();
        for (name, value) in self.session.take_reports() {
            backend::parameter_status(&mut self.out, name, &value);
        }
        let status = self.session.transaction_status();
        backend::ready_for_query(&mut self.out, status);
        let activity = match status {
            b'T' => Activity::IdleInTransaction,
            b'E' => Activity::IdleInFailedTransaction,
            _ => Activity::Idle,
        };
        self.session.set_activity(activity, None);
        // More messages are here already: their answers can go with these.
        let pipelined = matches!(frontend::message_length(&self.input), Ok(Some(_)));
        self.ready_held = pipelined && self.out.len() < OUTPUT_HIGH;
        match self.ready_held {
            true => Ok(()),
            false => self.flush().await,
        }
    }

    fn send_notices(&mut self) {
        for notice in self.session.take_notices() {
            backend::error(&mut self.out, &notice);
        }
    }

    /// Writes the output, after everything it tells of is durable.
    async fn flush(&mut self) -> Flow {
        if self.out.is_empty() {
            return Ok(());
        }
        while let Some(wait) = self.session.answer_barrier().map_err(|e| {
            // What the buffer says may not be true: it is not sent.
            self.out.clear();
            End::Fatal(e.severity(Severity::Fatal))
        })? {
            wait.await;
        }
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        Ok(())
    }

    /// Runs a portal to its end or suspension; rows go to the output.
    async fn run_portal(
        &mut self,
        portal: &str,
        formats: &Formats,
        max_rows: u64,
        describe: bool,
    ) -> Result<Result<Progress, SqlError>, End> {
        let timer = self.statement_timer();
        let outcome = self.drive(portal, formats, max_rows, describe).await;
        if let Some(timer) = timer {
            timer.abort();
        }
        outcome
    }

    async fn drive(
        &mut self,
        portal: &str,
        formats: &Formats,
        max_rows: u64,
        describe: bool,
    ) -> Result<Result<Progress, SqlError>, End> {
        let mut left = max_rows;
        let mut describe = describe;
        loop {
            let (progress, sent) = self.step(portal, formats, left, describe)?;
            describe &= sent == 0;
            match progress {
                Ok(Progress::Wait(handle)) => {
                    if let Err(e) = self.wait(handle).await? {
                        return Ok(Err(e));
                    }
                }
                Ok(Progress::FlushRows) => {
                    self.flush().await?;
                    if max_rows > 0 {
                        left = left.saturating_sub(sent).max(1);
                    }
                }
                Ok(Progress::CopyIn(info)) => {
                    backend::copy_response(&mut self.out, b'G', info.columns, info.binary);
                    if let Err(e) = self.copy_in(portal).await? {
                        return Ok(Err(e));
                    }
                }
                done => return Ok(done),
            }
        }
    }

    /// Logs a statement that took `log_min_duration_statement` or longer.
    fn log_duration(&self, started: Instant, kind: &str, text: &str) {
        let Some(limit) = self.session.log_min_duration() else { return };
        let took = started.elapsed();
        if took >= limit {
            let ms = took.as_secs_f64() * 1000.0;
            log::write(Level::Log, &format!("duration: {ms:.3} ms  {kind}: {text}"));
        }
    }

    /// One step in the engine: synchronous, and kept from taking the server down.
    fn step(
        &mut self,
        portal: &str,
        formats: &Formats,
        max_rows: u64,
        describe: bool,
    ) -> Result<(Result<Progress, SqlError>, u64), End> {
        let long = self.session.portal(portal).is_ok_and(|p| p.prepared().is_long());
        let (session, out) = (&mut self.session, &mut self.out);
        let mut sink = WireSink::new(out, formats, describe);
        let run = AssertUnwindSafe(|| session.step(portal, &mut sink, max_rows));
        let caught = match long {
            true => tokio::task::block_in_place(|| std::panic::catch_unwind(run)),
            false => std::panic::catch_unwind(run),
        };
        match caught {
            Ok(progress) => {
                let sent = sink.rows();
                sink.finish(&progress);
                Ok((progress, sent))
            }
            Err(_panic) => Err(End::Fatal(
                SqlError::internal("the statement failed unexpectedly; the session is closed")
                    .severity(Severity::Fatal),
            )),
        }
    }

    /// Waits for what a statement waits for; watches the client and `lock_timeout` meanwhile.
    async fn wait(&mut self, handle: WaitHandle) -> Result<Result<(), SqlError>, End> {
        if handle.is_ready() {
            // The statement only makes room for others.
            tokio::task::yield_now().await;
            return Ok(Ok(()));
        }
        let cancel = self.registered.cancel.clone();
        let limit = self.session.lock_timeout();
        let started = tokio::time::Instant::now();
        let watch = cancel.watch(handle.event());
        tokio::pin!(handle);
        loop {
            tokio::select! {
                () = &mut handle => break,
                () = tokio::time::sleep(CLIENT_CHECK.min(limit.unwrap_or(CLIENT_CHECK))) => {
                    if limit.is_some_and(|l| started.elapsed() >= l) {
                        cancel.request(CancelReason::LockTimeout);
                    }
                    if client_is_gone(&self.stream) {
                        cancel.request(CancelReason::Terminate);
                    }
                }
            }
        }
        drop(watch);
        Ok(cancel.check())
    }

    /// Cancels the statement when `statement_timeout` has passed.
    fn statement_timer(&self) -> Option<tokio::task::JoinHandle<()>> {
        let limit = self.session.statement_timeout()?;
        let cancel = self.registered.cancel.clone();
        Some(tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            cancel.request(CancelReason::StatementTimeout);
        }))
    }
}

fn fatal(e: SqlError) -> End {
    End::Fatal(e.severity(Severity::Fatal))
}

fn pending_error(cancel: &inkling_sql::session::CancelFlag) -> SqlError {
    match cancel.check() {
        Err(e) => e,
        Ok(()) => SqlError::internal("interrupted without a reason").severity(Severity::Fatal),
    }
}

/// A read that a request to end the session interrupts.
async fn interruptible(
    read: impl Future<Output = std::io::Result<usize>>,
    cancel: &inkling_sql::session::CancelFlag,
) -> Result<usize, End> {
    tokio::pin!(read);
    std::future::poll_fn(|cx| match cancel.poll_end(cx) {
        true => Poll::Ready(Err(End::Fatal(pending_error(cancel)))),
        false => read.as_mut().poll(cx).map_err(End::from),
    })
    .await
}

/// Whether the client has closed its end.
fn client_is_gone(stream: &TcpStream) -> bool {
    let socket = socket2::SockRef::from(stream);
    let mut byte = [std::mem::MaybeUninit::uninit()];
    match socket.peek(&mut byte) {
        Ok(0) => true,
        Ok(_) => false,
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
    }
}
