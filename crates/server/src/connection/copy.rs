//! COPY FROM STDIN: the client's data to the session, as much at a time as has come.
//!
//! ```text
//!   input: [d 24 ..row..][d 31 ..row..][d 27 ..row..][d 30 ..ro      one call of the session for
//!          '------------- whole messages -----------'                the three; the rest waits
//! ```
//!
//! Clients send a message a row (libpq's `PQputCopyData`), so what is done once a message would be
//! done once a row.

use super::{Connection, End, Next};
use crate::wire::frontend::{self, CopyFrames, Frontend};
use inkling_sql::error::{SqlError, State};

/// Room for input while data comes.
const INPUT: usize = 128 << 10;

impl Connection {
    /// Feeds COPY data to the portal until the client is done. On an error the rest of the data
    /// is read and dropped by the main loop.
    pub(super) async fn copy_in(&mut self, portal: &str) -> Result<Result<(), SqlError>, End> {
        self.flush().await?;
        loop {
            let length = frontend::copy_frames(&self.input).len();
            if length > 0 {
                let pieces = CopyFrames::new(&self.input[..length]);
                let session = &mut self.session;
                let fed = tokio::task::block_in_place(|| session.copy_data(portal, pieces));
                bytes::Buf::advance(&mut self.input, length);
                if let Err(e) = fed {
                    return Ok(Err(e));
                }
            }
            self.input.reserve(INPUT);
            let message = match self.next_message().await? {
                Next::Message(m) => m,
                Next::End => return Err(End::Client),
            };
            let decoded = match frontend::decode(&message) {
                Ok(m) => m,
                Err(e) => return Ok(Err(e)),
            };
            let session = &mut self.session;
            let fed = match decoded {
                Frontend::CopyData(data) => {
                    let piece = std::iter::once(data);
                    tokio::task::block_in_place(|| session.copy_data(portal, piece))
                }
                Frontend::CopyDone => {
                    return Ok(tokio::task::block_in_place(|| session.copy_done(portal)));
                }
                Frontend::CopyFail(why) => Err(session.copy_fail(why)),
                Frontend::Flush | Frontend::Sync => continue,
                Frontend::Terminate => return Err(End::Client),
                _ => Err(SqlError::new(
                    State::PROTOCOL_VIOLATION,
                    "unexpected message type during COPY from stdin",
                )),
            };
            if let Err(e) = fed {
                return Ok(Err(e));
            }
        }
    }
}
