//! Serial equivalence: an outcome is right if some order of the committed transactions, one after
//! the other, gives every one of them the same answers and leaves the same state.
//!
//! A spec that is judged so has one transaction a session and a `final` query. What an aborted
//! transaction read does not count: it was told to forget it.

use crate::run::{Answer, Bench, Outcome, one};
use crate::spec::Spec;
use std::collections::HashMap;

/// What serial orders give: for each set of committed sessions, the outcomes.
pub struct Oracle<'a> {
    bench: &'a Bench,
    spec: &'a Spec,
    level: &'a str,
    serial: HashMap<Vec<usize>, Vec<Serial>>,
}

/// Answers of the sessions of the set, and the state in the end.
type Serial = (Vec<Vec<Answer>>, Vec<String>);

impl<'a> Oracle<'a> {
    pub fn new(bench: &'a Bench, spec: &'a Spec, level: &'a str) -> Self {
        assert!(spec.last.is_some(), "a spec that is checked has a final query");
        Oracle { bench, spec, level, serial: HashMap::new() }
    }

    pub fn is_serializable(&mut self, outcome: &Outcome) -> bool {
        let set = (0..outcome.committed.len()).filter(|a| outcome.committed[*a]);
        let set = set.collect::<Vec<_>>();
        let answers = set.iter().map(|a| outcome.answers[*a].clone()).collect::<Vec<_>>();
        self.serial_orders(&set).iter().any(|(a, last)| *a == answers && *last == outcome.last)
    }

    fn serial_orders(&mut self, set: &[usize]) -> &[Serial] {
        let (bench, spec, level) = (self.bench, self.spec, self.level);
        self.serial.entry(set.to_vec()).or_insert_with(|| {
            let mut orders = Vec::new();
            permute(set, &mut Vec::new(), &mut orders);
            let serial = orders.iter().map(|order| {
                let steps = order
                    .iter()
                    .flat_map(|a| (0..spec.actors[*a].steps.len()).map(move |step| (*a, step)));
                let outcome = one(bench, spec, level, &steps.collect::<Vec<_>>());
                (set.iter().map(|a| outcome.answers[*a].clone()).collect(), outcome.last)
            });
            serial.collect()
        })
    }
}

fn permute(left: &[usize], taken: &mut Vec<usize>, out: &mut Vec<Vec<usize>>) {
    if left.is_empty() {
        out.push(taken.clone());
    }
    for (at, item) in left.iter().enumerate() {
        let mut rest = left.to_vec();
        rest.remove(at);
        taken.push(*item);
        permute(&rest, taken, out);
        taken.pop();
    }
}
