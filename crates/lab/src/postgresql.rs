//! A PostgreSQL of one's own: a new cluster with checksums, on a free port, without a socket file.
//!
//! PostgreSQL refuses to run as root. Where the lab runs as root, the cluster belongs to the user
//! `postgres`, and so do the processes.

use crate::LabError;
use crate::error::missing_or_io;
use crate::server::{Server, Settings};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Another process may take a free port before the server does.
const ATTEMPTS: usize = 3;
const HINT: &str = "--postgres names the directory with initdb and postgres";

/// Where the programs are, and who runs them.
#[derive(Clone, Debug)]
pub struct Installation {
    bin: PathBuf,
    user: Option<User>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
}

impl Installation {
    /// The programs in `bin`.
    pub fn new(bin: &Path) -> Result<Installation, LabError> {
        // The processes work elsewhere, so a relative path would lead them nowhere.
        let initdb = bin.join("initdb");
        let bin = fs::canonicalize(&initdb).map_err(missing_or_io(&initdb, HINT))?;
        let bin = bin.parent().unwrap_or(Path::new("/")).to_owned();
        let user = if rustix::process::geteuid().is_root() {
            let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
            Some(user(&users, "postgres").ok_or(LabError::NobodyToRunAs)?)
        } else {
            None
        };
        Ok(Installation { bin, user })
    }

    fn command(&self, program: &str, place: &Path) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(place).env("LC_ALL", "C").env_remove("PGDATA").env_remove("PGPORT");
        if let Some(User { uid, gid }) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Makes a cluster with checksums in `place`.
    pub fn init(&self, place: &Path) -> Result<(), LabError> {
        if let Some(User { uid, gid }) = self.user {
            std::os::unix::fs::chown(place, Some(uid), Some(gid))
                .map_err(LabError::io("give away", place))?;
        }
        let mut command = self.command("initdb", place);
        command.arg("-D").arg(place.join("data")).args(["-U", "postgres", "-A", "trust"]);
        command.args(["--data-checksums", "--no-locale", "-E", "UTF8", "--no-sync"]);
        let program = self.bin.join("initdb");
        let out = command.output().map_err(missing_or_io(&program, HINT))?;
        if out.status.success() {
            return Ok(());
        }
        Err(LabError::Program {
            program: program.display().to_string(),
            status: out.status.to_string(),
            said: String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned(),
        })
    }

    /// Starts the cluster in `place`.
    pub fn start(
        &self,
        subject: &str,
        place: &Path,
        settings: &Settings,
    ) -> Result<Server, LabError> {
        let mut attempt = 1;
        loop {
            let port = free_port()?;
            let mut command = self.command("postgres", place);
            command.arg("-D").arg(place.join("data")).arg("-p").arg(port.to_string());
            command.args(["-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1"]);
            for (name, value) in settings {
                command.arg("-c").arg(format!("{name}={value}"));
            }
            // SIGINT: sessions are ended; SIGTERM would wait for them.
            let log = place.join("log");
            match Server::launch(subject, command, Signal::INT, &log, Some(port)) {
                Err(LabError::Start { log, .. })
                    if log.contains("could not bind") && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }
}

fn free_port() -> Result<u16, LabError> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
    let failed = |source| LabError::Io { what: "find a free port".to_owned(), source };
    bound.map(|a| a.port()).map_err(failed)
}

/// Looks a user up in the text of a passwd file.
fn user(passwd: &str, name: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let _password = fields.next()?;
        Some(User { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_passwd_file() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\npostgres:x:101:104::/:/bin/sh\n";
        assert_eq!(user(passwd, "postgres"), Some(User { uid: 101, gid: 104 }));
        assert_eq!(user(passwd, "post"), None);
        assert_eq!(user("postgres:x:many:104", "postgres"), None);
    }

    #[test]
    fn a_directory_without_programs_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = Installation::new(dir.path()).unwrap_err().to_string();
        assert!(error.contains("initdb\" was not found: --postgres names"), "{error}");
    }
}
