//! The start of a connection: encryption requests, cancel requests, authentication, settings.

use super::{Connection, End, Flow, fatal};
use crate::auth::{self, Answer, Decision};
use crate::server::Shared;
use crate::wire::backend::{self, Out};
use crate::wire::frontend::{self, Frontend, Startup};
use bytes::BytesMut;
use hashbrown::HashMap;
use inkling_sql::error::{Severity, SqlError, State};
use inkling_sql::session::{Session, SessionParams};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A client that has not said who it is by then is disconnected.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves one client from its first byte to its last.
pub async fn serve(shared: Arc<Shared>, mut stream: TcpStream, peer: SocketAddr) {
    let started = tokio::time::timeout(STARTUP_TIMEOUT, start(&shared, &mut stream, peer)).await;
    let (session, registered, input, out) = match started {
        Err(_elapsed) => return,
        Ok(Ok(Some(parts))) => parts,
        Ok(Ok(None)) => return,
        Ok(Err(end)) => return say_goodbye(&mut stream, Out::new(), end).await,
    };
    let mut connection = Connection {
        stream,
        input,
        out,
        session,
        registered,
        formats: HashMap::new(),
        skipping: false,
        ready_held: false,
    };
    if let Err(end) = connection.run().await {
        let Connection { mut stream, out, session, .. } = connection;
        drop(session);
        say_goodbye(&mut stream, out, end).await;
    }
}

/// Tells the client why the connection ends, if there is something to tell.
async fn say_goodbye(stream: &mut TcpStream, mut out: Out, end: End) {
    if let End::Fatal(e) = end {
        backend::error(&mut out, &e);
        // A client that is gone does not hear it.
        let _gone = stream.write_all(&out).await;
    }
    let _gone = stream.shutdown().await;
}

type Started = (Session, crate::registry::Registered, BytesMut, Out);

async fn start(
    shared: &Arc<Shared>,
    stream: &mut TcpStream,
    peer: SocketAddr,
) -> Result<Option<Started>, End> {
    let mut input = BytesMut::with_capacity(1024);
    let parameters = loop {
        let packet = startup_packet(stream, &mut input).await?;
        match frontend::decode_startup(&packet).map_err(fatal)? {
            Startup::Ssl | Startup::Gss => {
                if !input.is_empty() {
                    // Bytes sent before the answer could be an attacker's.
                    return Err(fatal(SqlError::new(
                        State::PROTOCOL_VIOLATION,
                        "received unencrypted data after SSL request",
                    )));
                }
                stream.write_all(b"N").await?;
            }
            Startup::Cancel { pid, secret } => {
                shared.registry.cancel(pid, secret);
                return Ok(None);
            }
            Startup::Session { minor, parameters } => break (minor, parameters),
        }
    };
    let (minor, parameters) = parameters;
    let params = session_params(parameters, &peer).map_err(End::Fatal)?;
    let mut out = Out::new();
    if minor > 0 || !params.unknown.is_empty() {
        let unknown: Vec<&str> = params.unknown.iter().map(String::as_str).collect();
        backend::negotiate_protocol_version(&mut out, &unknown);
    }
    authenticate(shared, stream, &mut input, &mut out, &params.session.user, &peer).await?;
    let registered = register(shared, params.session).map_err(End::Fatal)?;
    let (mut session, registered) = registered;
    backend::authentication_ok(&mut out);
    for (name, value) in session.all_reports() {
        backend::parameter_status(&mut out, name, &value);
    }
    backend::backend_key_data(&mut out, registered.pid, registered.secret);
    backend::ready_for_query(&mut out, session.transaction_status());
    stream.write_all(&out).await?;
    out.clear();
    Ok(Some((session, registered, input, out)))
}

fn register(
    shared: &Arc<Shared>,
    mut params: SessionParams,
) -> Result<(Session, crate::registry::Registered), SqlError> {
    if shared.is_stopping() {
        return Err(SqlError::new(
            State::CANNOT_CONNECT_NOW,
            "the database system is shutting down",
        )
        .severity(Severity::Fatal));
    }
    let limit = shared.db.settings.int("max_connections").max(1) as usize;
    let registered = shared.registry.register(limit).ok_or_else(|| {
        SqlError::new(State::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
            .severity(Severity::Fatal)
    })?;
    params.pid = registered.pid;
    params.cancel = registered.cancel.clone();
    let session = Session::new(&shared.db, params).map_err(|e| e.severity(Severity::Fatal))?;
    Ok((session, registered))
}

async fn startup_packet(stream: &mut TcpStream, input: &mut BytesMut) -> Result<BytesMut, End> {
    loop {
        if let Some(length) = frontend::startup_length(input).map_err(fatal)? {
            return Ok(input.split_to(length));
        }
        if stream.read_buf(input).await? == 0 {
            return Err(End::Client);
        }
    }
}

struct StartupParams {
    session: SessionParams,
    /// Protocol options (`_pq_.`) that the client must be told are unknown.
    unknown: Vec<String>,
}

fn session_params(
    parameters: Vec<(String, String)>,
    peer: &SocketAddr,
) -> Result<StartupParams, SqlError> {
    let mut session = SessionParams { client: peer.to_string(), ..SessionParams::default() };
    let mut unknown = Vec::new();
    for (name, value) in parameters {
        match name.as_str() {
            "user" => session.user = value,
            "database" => session.database = value,
            "options" => session.settings.extend(command_line_options(&value)?),
            "replication" => {
                if !matches!(value.as_str(), "false" | "off" | "0" | "no") {
                    return Err(
                        SqlError::unsupported("a replication connection").severity(Severity::Fatal)
                    );
                }
            }
            _ if name.starts_with("_pq_.") => unknown.push(name),
            _ => session.settings.push((name, value)),
        }
    }
    if session.user.is_empty() {
        return Err(SqlError::new(
            State::INVALID_AUTHORIZATION_SPECIFICATION,
            "no PostgreSQL user name specified in startup packet",
        )
        .severity(Severity::Fatal));
    }
    if session.database.is_empty() {
        session.database = session.user.clone();
    }
    Ok(StartupParams { session, unknown })
}

/// `-c name=value` and `--name=value`, with backslash-escaped spaces, as libpq's `options` has it.
fn command_line_options(text: &str) -> Result<Vec<(String, String)>, SqlError> {
    let mut words = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let last = words.len() - 1;
        match c {
            '\\' => words[last].extend(chars.next()),
            c if c.is_whitespace() => words.push(String::new()),
            c => words[last].push(c),
        }
    }
    let mut words = words.into_iter().filter(|w| !w.is_empty());
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word.as_str() {
            "-c" => words.next(),
            w if w.starts_with("--") => Some(w[2..].to_owned()),
            w if w.starts_with("-c") => Some(w[2..].to_owned()),
            _ => None,
        };
        let (name, value) =
            setting.as_deref().and_then(|s| s.split_once('=')).ok_or_else(|| {
                SqlError::new(
                    State::SYNTAX_ERROR,
                    format!("invalid command-line argument for server process: {word}"),
                )
                .severity(Severity::Fatal)
            })?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

async fn authenticate(
    shared: &Shared,
    stream: &mut TcpStream,
    input: &mut BytesMut,
    out: &mut Out,
    user: &str,
    peer: &SocketAddr,
) -> Flow {
    let catalog =
        shared.db.catalog.current().map_err(|e| End::Fatal(e.severity(Severity::Fatal)))?;
    let role = catalog.role_names.get(user).and_then(|oid| catalog.roles.get(oid));
    let decision =
        auth::decide(user, role.map(AsRef::as_ref), peer.ip().is_loopback()).map_err(End::Fatal)?;
    let Decision::Scram(mut exchange) = decision else { return Ok(()) };
    exchange.begin(out);
    loop {
        stream.write_all(out).await?;
        out.clear();
        let message = loop {
            if let Some(length) = frontend::message_length(input).map_err(fatal)? {
                break input.split_to(length);
            }
            if stream.read_buf(input).await? == 0 {
                return Err(End::Client);
            }
        };
        let Frontend::Password(body) = frontend::decode(&message).map_err(fatal)? else {
            let e = SqlError::new(State::PROTOCOL_VIOLATION, "expected SASL response");
            return Err(fatal(e));
        };
        match exchange.answer(body, out).map_err(End::Fatal)? {
            Answer::Continue => {}
            Answer::Done => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_split_as_a_shell_would_not() {
        let got = command_line_options("-c a=1 --b-c=x\\ y -cd=2").expect("options");
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(got, vec![pair("a", "1"), pair("b_c", "x y"), pair("d", "2")]);
        assert!(command_line_options("-x").is_err());
        assert!(command_line_options("-c a").is_err());
    }
}
