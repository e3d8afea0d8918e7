//! Who is compared: Inkling under each hint policy, and PostgreSQL.
//!
//! ```text
//! Subject ──install──> Installed (a directory of its own) ──start──> Server
//! ```

use crate::postgresql::Installation;
use crate::server::{Server, Settings, make_disposable, start_inkling};
use crate::workplace::{Place, Workplace};
use crate::{LabError, Params, Report};

/// What hints may do, the default first. The last one breaks the rules (it does what a crash must
/// not see) and is the measure for the others.
pub const POLICIES: [&str; 5] = ["frame", "page_lsn", "flushed", "off", UNSAFE];
/// Every hint is set at once, whatever is durable.
pub const UNSAFE: &str = "unsafe_immediate";
/// What PostgreSQL is called in reports.
pub const POSTGRESQL: &str = "PostgreSQL";

/// One who is compared.
#[derive(Clone, Debug)]
pub struct Subject {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Inkling { policy: Option<&'static str> },
    PostgreSql(Installation),
}

impl Subject {
    /// Inkling as it comes.
    pub fn inkling() -> Subject {
        Subject { name: "Inkling".to_owned(), kind: Kind::Inkling { policy: None } }
    }

    /// Inkling under a policy.
    pub fn policy(policy: &'static str) -> Subject {
        Subject { name: policy_name(policy), kind: Kind::Inkling { policy: Some(policy) } }
    }

    /// PostgreSQL, if the run has one.
    pub fn postgresql(params: &Params) -> Result<Option<Subject>, LabError> {
        let Some(bin) = &params.postgres else { return Ok(None) };
        let kind = Kind::PostgreSql(Installation::new(bin)?);
        Ok(Some(Subject { name: POSTGRESQL.to_owned(), kind }))
    }

    /// Inkling as it comes, and PostgreSQL, if the run has one.
    pub fn both(params: &Params) -> Result<Vec<Subject>, LabError> {
        Ok(std::iter::once(Subject::inkling()).chain(Subject::postgresql(params)?).collect())
    }

    /// Inkling under every policy, the default first, then PostgreSQL.
    pub fn every_policy(params: &Params) -> Result<Vec<Subject>, LabError> {
        let ours = POLICIES.iter().map(|p| Subject::policy(p));
        Ok(ours.chain(Subject::postgresql(params)?).collect())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_postgresql(&self) -> bool {
        matches!(self.kind, Kind::PostgreSql(_))
    }

    /// Makes a new directory for it.
    pub fn install(&self, work: &Workplace) -> Result<Installed, LabError> {
        let place = work.place()?;
        match &self.kind {
            Kind::PostgreSql(installation) => installation.init(place.path())?,
            Kind::Inkling { policy: Some(UNSAFE) } => make_disposable(&self.name, place.path())?,
            // The first start makes it.
            Kind::Inkling { .. } => {}
        }
        Ok(Installed { subject: self.clone(), place })
    }
}

/// What Inkling under a policy is called in reports.
pub fn policy_name(policy: &str) -> String {
    format!("Inkling {policy}")
}

/// A subject with a directory, which goes when this is dropped.
pub struct Installed {
    subject: Subject,
    place: Place,
}

impl Installed {
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Starts it, with these settings beside its own.
    pub fn start(&self, settings: &Settings) -> Result<Server, LabError> {
        let mut settings = settings.clone();
        let (name, place) = (&self.subject.name, self.place.path());
        match &self.subject.kind {
            Kind::Inkling { policy } => {
                settings.extend(policy.map(|p| ("hint_policy", p.to_owned())));
                start_inkling(name, place, &settings)
            }
            Kind::PostgreSql(installation) => installation.start(name, place, &settings),
        }
    }
}

/// Settings that all subjects share: memory for pages, and a log that causes no checkpoint by
/// itself during a measurement.
pub fn common_settings(shared_buffers_bytes: u64, connections: usize) -> Settings {
    vec![
        ("shared_buffers", format!("{}kB", shared_buffers_bytes / 1024)),
        ("max_wal_size", "4GB".to_owned()),
        // Log files of the load are used again: nobody prepares new ones while time is taken.
        ("min_wal_size", "2GB".to_owned()),
        ("checkpoint_timeout", "30min".to_owned()),
        // Room for those who look on.
        ("max_connections", (connections + 20).to_string()),
    ]
}

/// Says so when Inkling's own code is not optimised: its times then mean nothing.
pub fn note_build(report: &mut Report) {
    if cfg!(debug_assertions) {
        report
            .note("This is a debug build of Inkling: its times say nothing about a release build.");
    }
}
