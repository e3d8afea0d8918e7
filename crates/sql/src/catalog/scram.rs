//! SCRAM-SHA-256 verifiers, as PostgreSQL keeps them in pg_authid.rolpassword (RFC 5802, 7677):
//! `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2, rand};
use std::num::NonZeroU32;

const PREFIX: &str = "SCRAM-SHA-256$";
const ITERATIONS: u32 = 4096;
const SALT_LEN: usize = 16;

/// A verifier taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub iterations: u32,
    pub salt: Vec<u8>,
    pub stored_key: Vec<u8>,
    pub server_key: Vec<u8>,
}

/// The verifier of a password; a text that is one already stays as it is.
pub fn verifier(password: &str) -> String {
    if parse(password).is_some() {
        return password.to_owned();
    }
    let mut salt = [0; SALT_LEN];
    let random = rand::SystemRandom::new();
    rand::SecureRandom::fill(&random, &mut salt).expect("the system's random source answers");
    with_salt(password, &salt, ITERATIONS)
}

fn with_salt(password: &str, salt: &[u8], iterations: u32) -> String {
    let rounds = NonZeroU32::new(iterations.max(1)).unwrap_or(NonZeroU32::MIN);
    let mut salted = [0; digest::SHA256_OUTPUT_LEN];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, password.as_bytes(), &mut salted);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
    let client_key = hmac::sign(&key, b"Client Key");
    let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
    let server_key = hmac::sign(&key, b"Server Key");
    format!(
        "{PREFIX}{iterations}:{}${}:{}",
        STANDARD.encode(salt),
        STANDARD.encode(stored_key),
        STANDARD.encode(server_key)
    )
}

/// Takes a stored verifier apart; `None` when it is none.
pub fn parse(text: &str) -> Option<Verifier> {
    let (head, keys) = text.strip_prefix(PREFIX)?.split_once('$')?;
    let (iterations, salt) = head.split_once(':')?;
    let (stored_key, server_key) = keys.split_once(':')?;
    let decode = |t: &str| STANDARD.decode(t).ok();
    let verifier = Verifier {
        iterations: iterations.parse().ok()?,
        salt: decode(salt)?,
        stored_key: decode(stored_key)?,
        server_key: decode(server_key)?,
    };
    let whole = digest::SHA256_OUTPUT_LEN;
    (verifier.stored_key.len() == whole && verifier.server_key.len() == whole).then_some(verifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_verifier() {
        // RFC 7677's example: password "pencil", 4096 rounds; keys computed from its salt.
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let text = with_salt("pencil", &salt, 4096);
        assert_eq!(
            text,
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
             WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
        assert_eq!(parse(&text).map(|v| v.iterations), Some(4096));
    }

    #[test]
    fn a_verifier_is_kept_and_a_password_is_not() {
        let v = verifier("secret");
        assert_ne!(v, "secret");
        assert_eq!(verifier(&v), v);
        assert!(parse("SCRAM-SHA-256$x").is_none());
    }
}
