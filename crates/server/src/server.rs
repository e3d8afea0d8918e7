//! The listener: accepts connections, serves each in a task of its own, stops when asked.

use crate::connection;
use crate::log::{self, Level};
use crate::registry::Registry;
use inkling_sql::session::Database;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What all connections of a server share.
pub struct Shared {
    pub db: Arc<Database>,
    pub registry: Arc<Registry>,
    stopping: AtomicBool,
}

impl Shared {
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// A server that listens but does not serve yet.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
}

/// Whether some role that may log in has a password.
fn has_passwords(db: &Database) -> io::Result<bool> {
    let catalog = db.catalog.current().map_err(|e| io::Error::other(e.to_string()))?;
    Ok(catalog.roles.values().any(|r| r.can_login && r.password.is_some()))
}

impl Server {
    /// Listens on `addresses`. Beyond loopback only when clients from there can prove who they
    /// are: otherwise anybody who reaches the port would be refused one by one, which is not what
    /// whoever configured it expects.
    pub async fn bind(db: Arc<Database>, addresses: &[SocketAddr]) -> io::Result<Server> {
        let beyond = addresses.iter().find(|a| !a.ip().is_loopback());
        if let Some(address) = beyond
            && !has_passwords(&db)?
        {
            return Err(io::Error::other(format!(
                "will not listen on {address}: no role has a password, so nobody beyond this \
                 host could log in; set one first (ALTER ROLE postgres PASSWORD '...')"
            )));
        }
        let mut listeners = Vec::with_capacity(addresses.len());
        for address in addresses {
            listeners.push(listen(*address)?);
        }
        let registry = Arc::new(Registry::default());
        let shared = Arc::new(Shared { db, registry, stopping: AtomicBool::new(false) });
        Ok(Server { shared, listeners })
    }

    /// Where it listens; with port 0 asked for, the port that was given.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listeners
            .first()
            .ok_or_else(|| io::Error::other("the server listens nowhere"))?
            .local_addr()
    }

    /// All addresses that it listens on.
    pub fn local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves until `stop` completes; then ends all sessions and returns.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (accepted, mut incoming) = tokio::sync::mpsc::channel(64);
        let mut acceptors = JoinSet::new();
        for listener in self.listeners {
            let accepted = accepted.clone();
            acceptors.spawn(async move { accept(listener, accepted).await });
        }
        drop(accepted);
        let mut sessions = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some((stream, peer)) = incoming.recv() => {
                    let shared = Arc::clone(&self.shared);
                    sessions.spawn(connection::serve(shared, stream, peer));
                }
                Some(ended) = sessions.join_next(), if !sessions.is_empty() => {
                    if let Err(e) = ended && e.is_panic() {
                        log::write(Level::Error, "a session ended unexpectedly");
                    }
                }
            }
        }
        self.shared.stopping.store(true, Ordering::Release);
        acceptors.abort_all();
        self.shared.registry.terminate_all();
        let drained = async { while sessions.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(30), drained).await.is_err() {
            log::write(Level::Warning, "some sessions did not end in time");
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let domain = if address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into()).map_err(|e| {
        io::Error::new(e.kind(), format!("could not bind {}:{}: {e}", address.ip(), address.port()))
    })?;
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

async fn accept(
    listener: TcpListener,
    accepted: tokio::sync::mpsc::Sender<(TcpStream, SocketAddr)>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Answers are written whole, so waiting for more bytes gains nothing.
                let _best_effort = stream.set_nodelay(true);
                if accepted.send((stream, peer)).await.is_err() {
                    return;
                }
            }
            Err(e) => {
                // Out of descriptors, mostly: it passes when sessions end.
                log::write(Level::Error, &format!("could not accept a connection: {e}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The addresses that a `listen_addresses` setting means.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    for name in host.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        match name {
            "*" => found.push(SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port)),
            "localhost" => found.push(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port)),
            name => {
                let ip: IpAddr = name.parse().map_err(|_| {
                    io::Error::other(format!("\"{name}\" is not an IP address to listen on"))
                })?;
                found.push(SocketAddr::new(ip, port));
            }
        }
    }
    match found.is_empty() {
        true => Err(io::Error::other("no address to listen on")),
        false => Ok(found),
    }
}
