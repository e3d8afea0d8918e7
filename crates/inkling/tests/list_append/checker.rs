//! Finds dependency cycles in histories of append-only lists.
//!
//! A transaction appends unique values to lists and reads whole lists. So a read tells which
//! version it saw *and every version before it in order*: nothing has to be guessed.
//!
//! ```text
//!   list 7:   [ ]  --T1-->  [1]  --T2-->  [1 4]  --T3-->  [1 4 9]        the longest read
//!
//!   T2 read [1]            wr  T1 -> T2   T2 saw what T1 left
//!   T1, T2 next to others  ww  T1 -> T2   T2's value follows T1's
//!   T4 read [1]            rw  T4 -> T2   T2 replaced what T4 saw
//! ```
//!
//! A cycle of these edges is an anomaly of Adya's hierarchy, named after the edges that it needs:
//!
//! | name           | what                                                   | not at           |
//! |----------------|--------------------------------------------------------|------------------|
//! | `G0`           | a cycle of ww                                          | any level        |
//! | `G1a`          | a read of what was rolled back (a savepoint's, too)    | READ COMMITTED   |
//! | `G1b`          | a read of a list between two appends of one transaction| READ COMMITTED   |
//! | `G1c`          | a cycle of ww and wr                                   | READ COMMITTED   |
//! | `G-single`     | a cycle with one rw: lost updates, read skew           | REPEATABLE READ  |
//! | `G-nonadjacent`| a cycle in which no two rw follow each other           | REPEATABLE READ  |
//! | `G2`           | any cycle: write skew, phantoms                        | SERIALIZABLE     |
//!
//! Snapshot isolation is what has no cycle without two rw in a row. That is looked for in a graph
//! with two nodes a transaction, "came here by rw" and "came otherwise", where no rw leaves the
//! first: a cycle there, of whatever length, is one that snapshot isolation does not allow.
//!
//! Further things that must never be, whatever the level: two reads of a list of which none is the
//! other's beginning (`order`), a value twice (`duplicate`), one that nobody appended (`unknown`),
//! a transaction that does not see its own appends (`internal`), and an acknowledged append that is
//! not in the end (`lost`).
//!
//! What is not known: a transaction whose commit was never answered. It counts as committed iff
//! somebody saw its values.
//!
//! Limits: a list that nobody read after an append keeps that append's place to itself; the caller
//! reads all lists at the end, so there is none. Order in real time between transactions is not
//! judged.

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

pub type Key = i32;
pub type Value = i64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Append(Key, Value),
    /// Appended inside a savepoint that was rolled back.
    Undone(Key, Value),
    Read(Key, Vec<Value>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Committed,
    Aborted,
    /// The commit was sent and never answered.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Txn {
    pub ops: Vec<Op>,
    pub fate: Fate,
}

/// Something that must not be, at one level or at any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    pub name: &'static str,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    /// Whether the level promises that there is none.
    pub fn forbids(self, name: &str) -> bool {
        match name {
            "G-single" | "G-nonadjacent" => self >= Level::RepeatableRead,
            "G2" => self >= Level::Serializable,
            _ => true,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
enum Edge {
    Ww,
    Wr,
    Rw,
}

/// A history on its way through the checker.
struct Checker<'h> {
    history: &'h [Txn],
    found: Vec<Anomaly>,
    /// Who appended a value, and whether it stands.
    writers: HashMap<(Key, Value), (usize, bool)>,
    /// The versions of each list, from the longest read.
    orders: BTreeMap<Key, Vec<Value>>,
    /// Committed, or seen to be.
    counts: Vec<bool>,
    edges: BTreeSet<(usize, usize, Edge)>,
}

/// Everything wrong with a history; one of each kind of cycle, however many there are.
pub fn check(history: &[Txn]) -> Vec<Anomaly> {
    let mut checker = Checker {
        history,
        found: Vec::new(),
        writers: HashMap::new(),
        orders: BTreeMap::new(),
        counts: history.iter().map(|txn| txn.fate == Fate::Committed).collect(),
        edges: BTreeSet::new(),
    };
    checker.note_writers();
    checker.note_orders();
    checker.settle_unknown();
    checker.check_reads();
    checker.check_own();
    checker.check_lost();
    checker.make_edges();
    checker.cycles();
    checker.found
}

impl<'h> Checker<'h> {
    fn anomaly(&mut self, name: &'static str, what: String) {
        self.found.push(Anomaly { name, what });
    }

    /// The reads of transactions that count, with who read.
    fn reads(&self) -> impl Iterator<Item = (usize, Key, &'h [Value])> + use<'h> {
        let history = self.history;
        let counts = self.counts.clone();
        history.iter().enumerate().filter(move |(at, _)| counts[*at]).flat_map(|(at, txn)| {
            txn.ops.iter().filter_map(move |op| match op {
                Op::Read(key, list) => Some((at, *key, list.as_slice())),
                _ => None,
            })
        })
    }

    fn note_writers(&mut self) {
        for (at, txn) in self.history.iter().enumerate() {
            for op in &txn.ops {
                let (key, value, stands) = match op {
                    Op::Append(key, value) => (*key, *value, txn.fate != Fate::Aborted),
                    Op::Undone(key, value) => (*key, *value, false),
                    Op::Read(..) => continue,
                };
                let before = self.writers.insert((key, value), (at, stands));
                assert!(before.is_none(), "the workload appended {value} to {key} twice");
            }
        }
    }

    fn note_orders(&mut self) {
        let mut longest: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        for (_, key, list) in self.reads() {
            let order = longest.entry(key).or_default();
            if list.len() > order.len() {
                *order = list.to_vec();
            }
        }
        for (at, key, list) in self.reads() {
            if !longest[&key].starts_with(list) {
                let what = format!("T{at} read {list:?} of {key}, others {:?}", longest[&key]);
                self.anomaly("order", what);
            }
        }
        for (key, order) in &longest {
            let mut seen = BTreeSet::new();
            for value in order {
                if !seen.insert(value) {
                    self.anomaly("duplicate", format!("{value} is in {key} twice: {order:?}"));
                }
                if !self.writers.contains_key(&(*key, *value)) {
                    self.anomaly("unknown", format!("nobody appended {value} to {key}"));
                }
            }
        }
        self.orders = longest;
    }

    /// Who was seen has committed.
    fn settle_unknown(&mut self) {
        for (key, order) in &self.orders {
            for value in order {
                if let Some((at, true)) = self.writers.get(&(*key, *value)) {
                    self.counts[*at] = true;
                }
            }
        }
    }

    fn last_append(&self, at: usize, key: Key) -> Option<Value> {
        self.history[at].ops.iter().rev().find_map(|op| match op {
            Op::Append(k, value) if *k == key => Some(*value),
            _ => None,
        })
    }

    fn check_reads(&mut self) {
        for (at, key, list) in self.reads() {
            for value in list {
                if let Some((writer, false)) = self.writers.get(&(key, *value)) {
                    let what = format!("T{at} read {value} in {key}, which T{writer} rolled back");
                    self.anomaly("G1a", what);
                }
            }
            let Some(last) = list.last() else { continue };
            let Some((writer, _)) = self.writers.get(&(key, *last)) else { continue };
            if *writer != at && self.last_append(*writer, key) != Some(*last) {
                let what = format!("T{at} read {key} up to {last}, in the middle of T{writer}");
                self.anomaly("G1b", what);
            }
        }
    }

    /// Own appends that stand are seen by own later reads, at the end of the list.
    fn check_own(&mut self) {
        for (at, txn) in self.history.iter().enumerate() {
            let mut own: HashMap<Key, Vec<Value>> = HashMap::new();
            for op in &txn.ops {
                match op {
                    Op::Append(key, value) => own.entry(*key).or_default().push(*value),
                    Op::Read(key, list) if own.get(key).is_some_and(|own| !list.ends_with(own)) => {
                        let what = format!("T{at} read {list:?} of {key} after {:?}", own[key]);
                        self.anomaly("internal", what);
                    }
                    _ => {}
                }
            }
        }
    }

    fn check_lost(&mut self) {
        for ((key, value), (at, stands)) in self.writers.clone() {
            let there = self.orders.get(&key).is_some_and(|order| order.contains(&value));
            if stands && self.history[at].fate == Fate::Committed && !there {
                self.anomaly("lost", format!("{value} of T{at} is not in {key}"));
            }
        }
    }

    fn edge(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to && self.counts[from] && self.counts[to] {
            self.edges.insert((from, to, edge));
        }
    }

    fn writer(&self, key: Key, value: Value) -> Option<usize> {
        self.writers.get(&(key, value)).map(|(at, _)| *at)
    }

    fn make_edges(&mut self) {
        for (key, order) in self.orders.clone() {
            for pair in order.windows(2) {
                if let (Some(a), Some(b)) = (self.writer(key, pair[0]), self.writer(key, pair[1])) {
                    self.edge(a, b, Edge::Ww);
                }
            }
        }
        for (at, key, list) in self.reads() {
            if let Some(writer) = list.last().and_then(|last| self.writer(key, *last)) {
                self.edge(writer, at, Edge::Wr);
            }
            let next = self.orders.get(&key).and_then(|order| order.get(list.len())).copied();
            if let Some(writer) = next.and_then(|value| self.writer(key, value)) {
                self.edge(at, writer, Edge::Rw);
            }
        }
    }

    fn cycles(&mut self) {
        let n = self.history.len();
        for (name, needs, allowed) in [
            ("G0", Edge::Ww, &[Edge::Ww][..]),
            ("G1c", Edge::Wr, &[Edge::Ww, Edge::Wr][..]),
            ("G2", Edge::Rw, &[Edge::Ww, Edge::Wr, Edge::Rw][..]),
        ] {
            let edges = self.edges.iter().filter(|(.., kind)| allowed.contains(kind));
            let edges: Vec<_> = edges.copied().collect();
            if let Some(cycle) = cycle_with(n, &edges, |kind| kind == needs) {
                self.anomaly(name, cycle);
            }
        }
        // Two nodes a transaction: the second is where rw leads, and no rw starts.
        let mut twice = Vec::new();
        for (from, to, kind) in &self.edges {
            match kind {
                Edge::Rw => twice.push((*from, *to + n, *kind)),
                _ => twice.extend([(*from, *to, *kind), (*from + n, *to, *kind)]),
            }
        }
        if let Some(cycle) = cycle_with(2 * n, &twice, |kind| kind == Edge::Rw) {
            let name = match cycle.matches("rw").count() {
                1 => "G-single",
                _ => "G-nonadjacent",
            };
            self.anomaly(name, cycle);
        }
    }
}

/// A short cycle through an edge that `needed` picks, in words. Nodes beyond the number of
/// transactions are second ones.
fn cycle_with(
    nodes: usize,
    edges: &[(usize, usize, Edge)],
    needed: impl Fn(Edge) -> bool,
) -> Option<String> {
    let mut graph: DiGraph<(), Edge> = DiGraph::with_capacity(nodes, edges.len());
    (0..nodes).for_each(|_| {
        graph.add_node(());
    });
    for (from, to, kind) in edges {
        graph.add_edge(NodeIndex::new(*from), NodeIndex::new(*to), *kind);
    }
    let mut component = vec![usize::MAX; nodes];
    for (number, members) in kosaraju_scc(&graph).iter().enumerate() {
        members.iter().for_each(|node| component[node.index()] = number);
    }
    let inside = |from: usize, to: usize| component[from] == component[to];
    // The shortest of the first few: what a person is to look at.
    let candidates = edges.iter().filter(|(from, to, kind)| needed(*kind) && inside(*from, *to));
    let cycles = candidates.take(50).filter_map(|(from, to, kind)| {
        let back = path(edges, &component, *to, *from)?;
        Some([vec![(*from, *kind, *to)], back].concat())
    });
    let shortest = cycles.min_by_key(Vec::len)?;
    let name = |node: usize| {
        // With two nodes a transaction the second half repeats the first.
        let doubled = edges
            .iter()
            .any(|(f, t, kind)| *kind == Edge::Rw && t >= &(nodes / 2) && *f < nodes / 2)
            && edges
                .iter()
                .all(|(f, t, kind)| *kind != Edge::Rw || (*f < nodes / 2 && *t >= nodes / 2));
        if doubled && node >= nodes / 2 { node - nodes / 2 } else { node }
    };
    let words = shortest.iter().map(|(from, kind, to)| {
        format!("T{} {} T{}", name(*from), format!("{kind:?}").to_lowercase(), name(*to))
    });
    Some(words.collect::<Vec<_>>().join(", "))
}

/// A shortest way, within the component.
fn path(
    edges: &[(usize, usize, Edge)],
    component: &[usize],
    from: usize,
    to: usize,
) -> Option<Vec<(usize, Edge, usize)>> {
    let mut out: HashMap<usize, Vec<(Edge, usize)>> = HashMap::new();
    for (a, b, kind) in edges
        .iter()
        .filter(|(a, b, _)| component[*a] == component[from] && component[*b] == component[from])
    {
        out.entry(*a).or_default().push((*kind, *b));
    }
    let mut came: HashMap<usize, (usize, Edge)> = HashMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        if at == to {
            let mut way = Vec::new();
            let mut node = to;
            while node != from {
                let (before, kind) = came[&node];
                way.push((before, kind, node));
                node = before;
            }
            way.reverse();
            return Some(way);
        }
        for (kind, next) in out.get(&at).into_iter().flatten() {
            if *next != from && !came.contains_key(next) {
                came.insert(*next, (at, *kind));
                queue.push_back(*next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::Op::{Append, Read, Undone};
    use super::*;

    fn committed(ops: &[Op]) -> Txn {
        Txn { ops: ops.to_vec(), fate: Fate::Committed }
    }

    fn aborted(ops: &[Op]) -> Txn {
        Txn { fate: Fate::Aborted, ..committed(ops) }
    }

    fn names(history: &[Txn]) -> Vec<&'static str> {
        let mut names: Vec<_> = check(history).iter().map(|anomaly| anomaly.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn read(key: Key, list: &[Value]) -> Op {
        Read(key, list.to_vec())
    }

    #[test]
    fn a_serial_history_is_clean() {
        let history = [
            committed(&[read(1, &[]), Append(1, 10), Append(1, 11), read(1, &[10, 11])]),
            aborted(&[Append(1, 12), read(1, &[10, 11, 12])]),
            committed(&[Undone(2, 5), Append(2, 20), read(1, &[10, 11])]),
            committed(&[Append(1, 13), read(2, &[20])]),
            committed(&[read(1, &[10, 11, 13]), read(2, &[20])]),
        ];
        assert_eq!(check(&history), []);
    }

    #[test]
    fn a_dirty_write_is_found() {
        let history = [
            committed(&[Append(1, 10), Append(2, 20)]),
            committed(&[Append(1, 11), Append(2, 21)]),
            committed(&[read(1, &[10, 11]), read(2, &[21, 20])]),
        ];
        assert_eq!(names(&history), ["G0"]);
    }

    #[test]
    fn a_read_of_what_was_rolled_back_is_found() {
        let history = [aborted(&[Append(1, 10)]), committed(&[read(1, &[10])])];
        assert_eq!(names(&history), ["G1a"]);
        let history = [committed(&[Undone(1, 10), Append(2, 1)]), committed(&[read(1, &[10])])];
        assert!(names(&history).contains(&"G1a"));
    }

    #[test]
    fn a_read_between_two_appends_is_found() {
        let history = [
            committed(&[Append(1, 10), Append(1, 11)]),
            committed(&[read(1, &[10])]),
            committed(&[read(1, &[10, 11])]),
        ];
        assert!(names(&history).contains(&"G1b"));
    }

    #[test]
    fn circular_information_flow_is_found() {
        let history = [
            committed(&[Append(1, 10), read(2, &[20])]),
            committed(&[Append(2, 20), read(1, &[10])]),
        ];
        assert_eq!(names(&history), ["G1c"]);
    }

    #[test]
    fn a_lost_update_and_read_skew_are_found() {
        let lost = [
            committed(&[read(1, &[]), Append(1, 10)]),
            committed(&[read(1, &[]), Append(1, 11)]),
            committed(&[read(1, &[10, 11])]),
        ];
        assert_eq!(names(&lost), ["G-single", "G2"]);
        let skew = [
            committed(&[read(1, &[]), read(2, &[20])]),
            committed(&[Append(1, 10), Append(2, 20)]),
            committed(&[read(1, &[10])]),
        ];
        assert_eq!(names(&skew), ["G-single", "G2"]);
    }

    #[test]
    fn write_skew_is_g2_and_allowed_by_snapshots() {
        let history = [
            committed(&[read(1, &[]), Append(2, 20)]),
            committed(&[read(2, &[]), Append(1, 10)]),
            committed(&[read(1, &[10]), read(2, &[20])]),
        ];
        assert_eq!(names(&history), ["G2"]);
        assert!(!Level::RepeatableRead.forbids("G2") && Level::Serializable.forbids("G2"));
        assert!(Level::RepeatableRead.forbids("G-single"));
        assert!(!Level::ReadCommitted.forbids("G-single") && Level::ReadCommitted.forbids("G1c"));
    }

    /// Two observers who disagree about which of two writes came first.
    #[test]
    fn a_long_fork_has_no_two_rw_in_a_row() {
        let history = [
            committed(&[Append(1, 10)]),
            committed(&[Append(2, 20)]),
            committed(&[read(1, &[10]), read(2, &[])]),
            committed(&[read(1, &[]), read(2, &[20])]),
            committed(&[read(1, &[10]), read(2, &[20])]),
        ];
        assert_eq!(names(&history), ["G-nonadjacent", "G2"]);
    }

    /// The read-only anomaly: three transactions, serializable but for the one that only reads.
    #[test]
    fn the_read_only_anomaly_is_g2() {
        let history = [
            committed(&[read(1, &[]), read(2, &[]), Append(1, 10)]),
            committed(&[read(2, &[]), Append(2, 20)]),
            committed(&[read(1, &[]), read(2, &[20])]),
            committed(&[read(1, &[10]), read(2, &[20])]),
        ];
        assert_eq!(names(&history), ["G2"]);
    }

    #[test]
    fn what_no_level_allows_is_found() {
        let forked = [
            committed(&[Append(1, 10)]),
            committed(&[Append(1, 11)]),
            committed(&[read(1, &[10])]),
            committed(&[read(1, &[11, 10])]),
        ];
        assert!(names(&forked).contains(&"order"));
        let lost = [committed(&[Append(1, 10)]), committed(&[read(1, &[])])];
        assert_eq!(names(&lost), ["lost"]);
        let twice = [committed(&[Append(1, 10)]), committed(&[read(1, &[10, 10])])];
        assert!(names(&twice).contains(&"duplicate"));
        let unknown = [committed(&[read(1, &[7])])];
        assert_eq!(names(&unknown), ["unknown"]);
        let own = [committed(&[Append(1, 10), read(1, &[])]), committed(&[read(1, &[10])])];
        assert!(names(&own).contains(&"internal"));
    }

    #[test]
    fn who_was_never_answered_counts_when_seen() {
        let unanswered = Txn { ops: vec![Append(1, 10)], fate: Fate::Unknown };
        assert_eq!(check(&[unanswered.clone(), committed(&[read(1, &[])])]), []);
        let seen = [
            Txn { ops: vec![read(2, &[]), Append(1, 10)], fate: Fate::Unknown },
            committed(&[read(1, &[]), Append(2, 20)]),
            committed(&[read(1, &[10]), read(2, &[20])]),
        ];
        assert_eq!(names(&seen), ["G2"]);
    }

    /// Serial histories at random are clean; with one read made stale they hardly ever are.
    #[test]
    fn random_serial_histories_are_clean_until_a_read_is_made_stale() {
        use inkling_storage::vfs::{Random, SeededRandom};
        let (mut stale, mut found) = (0, 0);
        for seed in 0..200 {
            let random = SeededRandom::new(seed);
            let mut lists: BTreeMap<Key, Vec<Value>> = (0..4).map(|k| (k, Vec::new())).collect();
            let mut history = Vec::new();
            for n in 0..40 {
                let mut ops = Vec::new();
                for part in 0..1 + random.below(4) {
                    let key = random.below(4) as Key;
                    let list = lists.get_mut(&key).expect("a list");
                    if random.below(2) == 0 {
                        let value = n * 10 + part as Value;
                        list.push(value);
                        ops.push(Append(key, value));
                    } else {
                        ops.push(Read(key, list.clone()));
                    }
                }
                history.push(committed(&ops));
            }
            let last = lists.iter().map(|(key, list)| Read(*key, list.clone())).collect::<Vec<_>>();
            history.push(committed(&last));
            assert_eq!(check(&history), [], "seed {seed}");
            let at = random.below(40) as usize;
            let long = history[at].ops.iter_mut().find_map(|op| match op {
                Read(_, list) if list.len() > 2 => Some(list),
                _ => None,
            });
            let Some(list) = long else { continue };
            list.truncate(list.len() / 2);
            stale += 1;
            found += usize::from(!check(&history).is_empty());
        }
        assert!(stale > 50 && found * 2 > stale, "{found} of {stale}");
    }
}
