//! Where a page is cut in two, and how short the key between the halves can be.
//!
//! The items are looked at as they would stand with the new one among them:
//!
//! ```text
//!   page  [ a  c  k  q ]      new item at index 2: f
//!   seen  [ a  c  f  k  q ]   cut = 2: left [a c], right [f k q], separator between c and f
//! ```
//!
//! - A page that grows at its end (ascending keys) is cut so that the left half stays as full as
//!   the fill factor says; any other in the middle.
//! - Near that ideal place, the cut with the shortest separator wins: it is what the level above
//!   stores.

use super::node::*;

/// A decided split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// How many of the items, the new one included, stay on the left page.
    pub left_count: usize,
    /// Whether the new item is among them.
    pub new_goes_left: bool,
}

/// The shortest position that is above `left` and not above `right`.
pub fn separator<'k>(left: Pos<'_>, right: Pos<'k>) -> Pos<'k> {
    debug_assert!(left < right, "a separator between {left:?} and {right:?}");
    if left.key == right.key {
        return right;
    }
    let common = common_prefix(left.key, right.key);
    Pos::before(&right.key[..right.key.len().min(common + 1)])
}

/// A full page and the item that does not fit, seen as one sequence.
#[derive(Clone, Copy)]
pub struct Overflow<'p> {
    pub node: Node<'p>,
    pub at: usize,
    pub new: Item<'p>,
}

impl<'p> Overflow<'p> {
    pub fn len(&self) -> usize {
        self.node.len() + 1
    }

    pub fn item(&self, i: usize) -> Read<Item<'p>> {
        match i.cmp(&self.at) {
            std::cmp::Ordering::Less => self.node.item(i),
            std::cmp::Ordering::Equal => Ok(self.new),
            std::cmp::Ordering::Greater => self.node.item(i - 1),
        }
    }

    /// The key between the halves: the left page's high key and the parent's separator.
    pub fn separator(&self, cut: usize) -> Read<Pos<'p>> {
        let (left, right) = (self.item(cut - 1)?.pos(), self.item(cut)?.pos());
        if left >= right {
            return Err(Damage("index items are out of order"));
        }
        Ok(if self.node.is_leaf() { separator(left, right) } else { right })
    }

    /// Bytes to aim at for the left page.
    fn ideal(&self, total: usize, fillfactor: u8) -> usize {
        let rightmost = self.node.right().is_none();
        let len = self.node.len();
        let ascending = self.at == len || (rightmost && self.at * 2 >= len);
        if ascending { USABLE * usize::from(fillfactor) / 100 } else { total / 2 }
    }

    /// Decides. Fails only on a damaged page: see the proof at the assertions in `node`.
    pub fn choose(&self, fillfactor: u8) -> Read<Cut> {
        let mut total = 0;
        for i in 0..self.len() {
            total += self.item(i)?.size();
        }
        let old_high = self.node.high()?.map_or(0, |high| high.key.len());
        let ideal = self.ideal(total, fillfactor);
        let (mut left, mut best) = (0, None);
        // At least one item on each side; the left page of an internal split keeps item 0.
        for cut in 1..self.len() {
            left += self.item(cut - 1)?.size();
            let right_first = self.item(cut)?;
            let mut right = total - left + old_high;
            if !self.node.is_leaf() {
                // Its separator moves up, and item 0 has none.
                right -= right_first.data_size() - LINK_SIZE;
            }
            let distance = left.abs_diff(ideal);
            if right > USABLE || left > USABLE || self.is_worse(best, distance) {
                continue;
            }
            let separator = self.separator(cut)?;
            if left + separator.key.len() > USABLE {
                continue;
            }
            let row = if separator.row == 0 { 0 } else { ROW_SIZE };
            // Far from the ideal place only distance counts; near it, the separator's length.
            let near = if distance <= USABLE / 16 { 0 } else { distance };
            let cost = (near, separator.key.len() + row, distance);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, cut));
            }
        }
        let (_, cut) = best.ok_or(Damage("an index page cannot be split"))?;
        Ok(Cut { left_count: cut, new_goes_left: self.at < cut })
    }

    /// Whether a cut so far off cannot beat the best one known.
    fn is_worse(&self, best: Option<((usize, usize, usize), usize)>, distance: usize) -> bool {
        best.is_some_and(|((near, ..), _)| distance > USABLE / 16 && distance >= near)
    }
}
