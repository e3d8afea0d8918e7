//! Who may connect: trust on loopback while the role has no password, SCRAM-SHA-256 otherwise.
//!
//! | client address | role has a password | outcome                       |
//! |----------------|---------------------|-------------------------------|
//! | loopback       | no                  | trusted                       |
//! | loopback       | yes                 | SCRAM-SHA-256                 |
//! | elsewhere      | yes                 | SCRAM-SHA-256                 |
//! | elsewhere      | no                  | refused (28P01)               |
//!
//! The server does not even listen beyond loopback unless some role that may log in has a
//! password (see `server.rs`). An unknown role fails like a wrong password, after the same
//! exchange, so that role names cannot be probed from elsewhere.

use crate::wire::backend;
use inkling_sql::catalog::{RoleDef, scram};
use inkling_sql::error::{Severity, SqlError, State};
use pgwire::api::auth::sasl::scram::{
    ScramSecret, ScramServerAuth, ScramServerAuthWaitingForClientFinal,
};

const MECHANISM: &str = "SCRAM-SHA-256";

/// What has to happen before the session starts.
pub enum Decision {
    Trusted,
    Scram(Box<Exchange>),
}

/// A SCRAM exchange under way.
pub struct Exchange {
    user: String,
    secret: Option<ScramSecret>,
    /// The role does not exist or has no password: go through the motions, then refuse.
    doomed: bool,
    waiting: Option<ScramServerAuthWaitingForClientFinal>,
}

/// The outcome of one message of the client.
pub enum Answer {
    /// Sent; the client goes on.
    Continue,
    /// The client knows the password.
    Done,
}

fn refused(user: &str) -> SqlError {
    SqlError::new(
        State::INVALID_PASSWORD,
        format!("password authentication failed for user \"{user}\""),
    )
    .severity(Severity::Fatal)
}

/// Decides how `user` has to authenticate.
pub fn decide(user: &str, role: Option<&RoleDef>, loopback: bool) -> Result<Decision, SqlError> {
    let verifier = role.and_then(|r| r.password.as_deref()).and_then(scram::parse);
    match (role, verifier) {
        (Some(_), None) if loopback => Ok(Decision::Trusted),
        (None, _) if loopback => Err(SqlError::new(
            State::INVALID_AUTHORIZATION_SPECIFICATION,
            format!("role \"{user}\" does not exist"),
        )
        .severity(Severity::Fatal)),
        (_, Some(v)) => Ok(Decision::Scram(Box::new(Exchange::new(user, v, false)))),
        (_, None) => {
            let decoy = scram::parse(&scram::verifier("")).ok_or_else(|| refused(user))?;
            Ok(Decision::Scram(Box::new(Exchange::new(user, decoy, true))))
        }
    }
}

impl Exchange {
    fn new(user: &str, verifier: scram::Verifier, doomed: bool) -> Self {
        let secret = ScramSecret::Verifier {
            salt: verifier.salt,
            iterations: verifier.iterations as usize,
            stored_key: verifier.stored_key,
            server_key: verifier.server_key,
        };
        Exchange { user: user.to_owned(), secret: Some(secret), doomed, waiting: None }
    }

    /// The first message to the client.
    pub fn begin(&self, out: &mut backend::Out) {
        backend::authentication_sasl(out, &[MECHANISM]);
    }

    /// Takes the body of one password message.
    pub fn answer(&mut self, body: &[u8], out: &mut backend::Out) -> Result<Answer, SqlError> {
        if let Some(waiting) = self.waiting.take() {
            let verdict = waiting.on_client_final_message(body).map_err(|_| refused(&self.user))?;
            if self.doomed {
                return Err(refused(&self.user));
            }
            backend::authentication_sasl_final(out, &verdict);
            return Ok(Answer::Done);
        }
        let first = initial_response(body).ok_or_else(|| {
            SqlError::new(State::PROTOCOL_VIOLATION, "malformed SASL message")
                .severity(Severity::Fatal)
        })?;
        let secret = self.secret.take().ok_or_else(|| refused(&self.user))?;
        let (challenge, waiting) = ScramServerAuth::new()
            .on_client_first_message_with_secret(first, secret)
            .map_err(|e| {
                SqlError::new(State::PROTOCOL_VIOLATION, "malformed SCRAM message")
                    .detail(e.to_string())
                    .severity(Severity::Fatal)
            })?;
        backend::authentication_sasl_continue(out, &challenge);
        self.waiting = Some(waiting);
        Ok(Answer::Continue)
    }
}

/// SASLInitialResponse: mechanism name, then the length and bytes of the first SCRAM message.
fn initial_response(body: &[u8]) -> Option<&[u8]> {
    let end = body.iter().position(|b| *b == 0)?;
    if &body[..end] != MECHANISM.as_bytes() {
        return None;
    }
    let rest = body.get(end + 1..)?;
    let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?) as usize;
    rest.get(4..4 + length)
}
