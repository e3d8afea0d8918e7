//! `inkling serve`: opens the directory, listens, and stops when a signal says so.
//!
//! | signal            | what happens                                                          |
//! |-------------------|-----------------------------------------------------------------------|
//! | SIGTERM, SIGINT   | sessions end, their transactions roll back, a last checkpoint          |
//! | SIGQUIT           | at once; the next start replays the log                               |
//! | SIGHUP            | a log line: settings are read at the start only                       |

use super::{Directory, Outcome, config, engine_log};
use clap::{ArgAction, Args};
use inkling::{apply_to, engine_options};
use inkling_server::log::{self, Level};
use inkling_server::{Server, resolve};
use inkling_sql::session::Database;
use inkling_sql::settings::{ChangeSource, ServerSettings};
use inkling_storage::engine::{Engine, OpenOutcome, ShutdownMode};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Deep expressions recurse in the tasks of sessions.
const STACK_BYTES: usize = 8 << 20;

#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct ServeArgs {
    #[command(flatten)]
    pub directory: Directory,
    /// Addresses to listen on, separated by commas; `*` for all.
    #[arg(short = 'h', long, value_name = "HOST")]
    pub host: Option<String>,
    /// The TCP port; 0 takes a free one, which the log tells.
    #[arg(short = 'p', long, value_name = "PORT")]
    pub port: Option<u16>,
    /// A setting, as in postgresql.conf. May be repeated.
    #[arg(short = 'c', long = "set", value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

pub fn serve(args: &ServeArgs) -> Outcome<ExitCode> {
    let root = &args.directory.data;
    let settings = settings(args)?;
    let port = args.port.unwrap_or_else(|| settings.int("port") as u16);
    let host = settings.get("listen_addresses").unwrap_or_default();
    let addresses = resolve(&host, port).map_err(|e| e.to_string())?;
    log::write(Level::Log, &format!("starting Inkling {}", super::VERSION));
    raise_file_limit();
    let runtime = runtime()?;
    let (engine, database) = open(root, settings)?;
    let mode = runtime.block_on(listen(database, &addresses));
    if matches!(mode, Ok(ShutdownMode::Immediate)) {
        runtime.shutdown_background();
    } else {
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
    match mode {
        Ok(mode) => {
            engine.shutdown(mode).map_err(|e| format!("the shutdown was not clean: {e}"))?;
            log::write(Level::Log, "database system is shut down");
            Ok(ExitCode::SUCCESS)
        }
        Err(what) => {
            // It never served: nothing is lost if this fails, too.
            let _closed = engine.shutdown(ShutdownMode::Fast);
            Err(what)
        }
    }
}

fn settings(args: &ServeArgs) -> Outcome<ServerSettings> {
    let mut settings = config::load(&args.directory.data, &args.settings)?;
    let mut set = |name: &str, value: &str| {
        let source = ChangeSource::CommandLine;
        settings.set(name, value, source).map_err(|e| e.message().to_owned())
    };
    if let Some(host) = &args.host {
        set("listen_addresses", host)?;
    }
    if let Some(port) = args.port.filter(|p| *p != 0) {
        set("port", &port.to_string())?;
    }
    Ok(settings)
}

fn open(root: &Path, settings: ServerSettings) -> Outcome<(Arc<Engine>, Arc<Database>)> {
    let mut options = engine_options(&settings);
    options.log_sink = Arc::new(engine_log);
    let (engine, outcome) = Engine::open_dir(root, options).map_err(|e| e.to_string())?;
    apply_to(&engine, &settings);
    log::write(
        Level::Log,
        &match outcome {
            OpenOutcome::Created => format!("created data directory \"{}\"", root.display()),
            OpenOutcome::CleanStart => "database system was shut down cleanly".to_owned(),
            OpenOutcome::Recovered(_) => {
                "database system was not shut down cleanly; recovery is complete".to_owned()
            }
        },
    );
    let database =
        Database::open(Arc::clone(&engine), settings).map_err(|e| e.message().to_owned())?;
    Ok((engine, database))
}

fn runtime() -> Outcome<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        .thread_stack_size(STACK_BYTES)
        .thread_name("session worker")
        .enable_all()
        .build()
        .map_err(|e| format!("could not start the worker threads: {e}"))
}

/// A connection is a descriptor: take as many as the system lets us.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // The old limit goes on to hold, and `accept` tells when it is reached.
        let _unchanged = setrlimit(Resource::Nofile, limit);
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hang_up: Signal,
}

impl Signals {
    fn install() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

/// Serves until a signal ends it.
async fn listen(database: Arc<Database>, addresses: &[SocketAddr]) -> Outcome<ShutdownMode> {
    let Signals { mut terminate, mut interrupt, mut quit, mut hang_up } =
        Signals::install().map_err(|e| format!("could not install signal handlers: {e}"))?;
    let server = Server::bind(database, addresses).await.map_err(|e| e.to_string())?;
    for address in server.local_addrs().map_err(|e| e.to_string())? {
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let (ip, port): (IpAddr, u16) = (address.ip(), address.port());
        let line = format!("listening on {family} address \"{ip}\", port {port}");
        log::write(Level::Log, &line);
    }
    log::write(Level::Log, "database system is ready to accept connections");
    let stop = async {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hang_up.recv() => {
                    let line = "received SIGHUP, ignored: settings are read at the start only";
                    log::write(Level::Log, line);
                }
            }
        }
        log::write(Level::Log, "received fast shutdown request");
    };
    tokio::select! {
        () = server.run(stop) => Ok(ShutdownMode::Fast),
        _ = quit.recv() => {
            log::write(Level::Log, "received immediate shutdown request");
            Ok(ShutdownMode::Immediate)
        }
    }
}
