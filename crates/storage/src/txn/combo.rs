//! Combined command ids: cmin and cmax of a row that one transaction both made and deleted.
//!
//! A tuple has one field for a command id. When the deleter is the maker, the field holds the
//! number of a pair kept here, local to the session, for as long as the transaction lasts: an
//! open cursor may ask for it later (semantics 34).

use crate::error::{Result, StorageError};
use crate::ids::CommandId;
use hashbrown::HashMap;

#[derive(Default)]
pub(crate) struct ComboCids {
    pairs: Vec<(CommandId, CommandId)>,
    numbers: HashMap<(CommandId, CommandId), u32, foldhash::fast::RandomState>,
}

impl ComboCids {
    /// The number that stands for the pair.
    pub(crate) fn number(&mut self, cmin: CommandId, cmax: CommandId) -> Result<CommandId> {
        if let Some(number) = self.numbers.get(&(cmin, cmax)) {
            return Ok(CommandId::new(*number));
        }
        let number = u32::try_from(self.pairs.len()).map_err(|_| StorageError::Limit {
            what: "too many rows inserted and deleted by one transaction".to_owned(),
        })?;
        self.pairs.push((cmin, cmax));
        self.numbers.insert((cmin, cmax), number);
        Ok(CommandId::new(number))
    }

    /// The pair behind a number; `None` when it is not one of this transaction's.
    pub(crate) fn pair(&self, number: CommandId) -> Option<(CommandId, CommandId)> {
        self.pairs.get(number.raw() as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_one_number() {
        let cid = CommandId::new;
        let mut combos = ComboCids::default();
        let first = combos.number(cid(1), cid(4)).expect("room");
        let second = combos.number(cid(4), cid(1)).expect("room");
        assert_ne!(first, second);
        assert_eq!(combos.number(cid(1), cid(4)).expect("room"), first);
        assert_eq!(combos.pair(second), Some((cid(4), cid(1))));
        assert_eq!(combos.pair(cid(2)), None);
    }
}
