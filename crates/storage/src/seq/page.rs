//! A sequence's page: layout, the one operation, replay.
//!
//! ```text
//!  byte 40             48          49           56 = lower
//!  | last value i64    | called u8 | zeros      |  nothing more
//! ```
//!
//! Integers are little-endian. "Called" tells whether the last value has been handed out; if not,
//! it is the next one. The operation in the log is the same without the zeros: 9 bytes.

use super::SeqState;
use crate::buffer::{OpError, PageOp};
use crate::page::{HEADER_SIZE, PAGE_SIZE, Page, PageClass};

const LAST_AT: usize = HEADER_SIZE;
const CALLED_AT: usize = LAST_AT + 8;
const ZEROS_AT: usize = CALLED_AT + 1;
const END: usize = ZEROS_AT + 7;
/// Bytes of the operation.
const OP_SIZE: usize = 9;

const _: () = assert!(CALLED_AT == LAST_AT + size_of::<i64>() && LAST_AT.is_multiple_of(8));
const _: () = assert!(END == HEADER_SIZE + 16 && END.is_multiple_of(8) && END <= PAGE_SIZE);
const _: () = assert!(OP_SIZE == ZEROS_AT - LAST_AT);

/// Makes the page say this, whatever it said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetSeq(pub SeqState);

impl SetSeq {
    fn decode(bytes: &[u8; OP_SIZE]) -> Result<Self, OpError> {
        let [last @ .., called] = *bytes;
        let called = match called {
            0 => false,
            1 => true,
            other => return Err(format!("a sequence is called or not, not {other}").into()),
        };
        Ok(SetSeq(SeqState { last: i64::from_le_bytes(last), called }))
    }
}

impl PageOp for SetSeq {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.last.to_le_bytes());
        out.push(u8::from(self.0.called));
    }

    fn apply(&self, page: &mut Page) -> Result<(), OpError> {
        page.init(PageClass::Sequence, 0);
        page.put_u64(LAST_AT, self.0.last.cast_unsigned());
        page.bytes_mut()[CALLED_AT] = u8::from(self.0.called);
        page.set_lower(END as u16);
        Ok(())
    }
}

fn operations(ops: &[u8]) -> Result<Vec<SetSeq>, OpError> {
    let (whole, []) = ops.as_chunks::<OP_SIZE>() else {
        return Err("malformed sequence operation".into());
    };
    whole.iter().map(SetSeq::decode).collect()
}

/// Replays a block's part of a record.
pub fn redo(ops: &[u8], page: &mut Page) -> Result<(), OpError> {
    operations(ops)?.iter().try_for_each(|op| op.apply(page))
}

/// Operations in words.
pub fn describe(ops: &[u8]) -> String {
    let Ok(list) = operations(ops) else { return "malformed".to_owned() };
    let words = |op: &SetSeq| {
        format!("last_value {} is_called {}", op.0.last, if op.0.called { "t" } else { "f" })
    };
    list.iter().map(words).collect::<Vec<_>>().join("; ")
}

/// What the page says. `Err` says what is wrong with it.
pub fn read(page: &Page) -> Result<SeqState, String> {
    if page.class() != Some(PageClass::Sequence) {
        return Err(format!("the page's class is {:?}, not Sequence", page.class()));
    }
    if usize::from(page.lower()) != END {
        return Err(format!("a sequence's page ends at byte {}, not {END}", page.lower()));
    }
    let bytes = page.bytes();
    let mut op = [0; OP_SIZE];
    op.copy_from_slice(&bytes[LAST_AT..ZEROS_AT]);
    let SetSeq(state) = SetSeq::decode(&op).map_err(|e| e.what)?;
    match bytes[ZEROS_AT..END].iter().all(|b| *b == 0) {
        true => Ok(state),
        false => Err("a sequence's page has bytes that are not zero behind its state".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_layout_is_as_it_was() {
        let mut page = Page::zeroed();
        SetSeq(SeqState { last: 0x0102_0304_0506_0708, called: true }).apply(&mut page).unwrap();
        let expected = [8, 7, 6, 5, 4, 3, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(page.bytes()[40..56], expected);
        assert_eq!(page.class(), Some(PageClass::Sequence));
        assert_eq!(page.lower(), 56);
    }

    #[test]
    fn states_round_trip_through_page_and_log() {
        for last in [i64::MIN, -1, 0, 1, i64::MAX] {
            for called in [false, true] {
                let op = SetSeq(SeqState { last, called });
                let (mut page, mut redone, mut bytes) = (Page::zeroed(), Page::zeroed(), vec![]);
                op.apply(&mut page).unwrap();
                op.encode(&mut bytes);
                assert_eq!(bytes.len(), OP_SIZE);
                redo(&bytes, &mut redone).unwrap();
                assert!(page.bytes() == redone.bytes());
                assert_eq!(read(&redone), Ok(op.0));
                assert!(redo(&bytes[1..], &mut redone).is_err());
            }
        }
        assert_eq!(describe(&[5, 0, 0, 0, 0, 0, 0, 0, 1]), "last_value 5 is_called t");
        assert_eq!(describe(&[5]), "malformed");
    }

    #[test]
    fn damage_is_noticed() {
        let mut page = Page::zeroed();
        assert!(read(&page).is_err(), "a page that was never written");
        SetSeq(SeqState { last: 1, called: false }).apply(&mut page).unwrap();
        for (at, value) in [(CALLED_AT, 2), (ZEROS_AT, 1), (END - 1, 9)] {
            let mut bad = page.clone();
            bad.bytes_mut()[at] = value;
            assert!(read(&bad).is_err(), "byte {at}");
        }
    }
}
