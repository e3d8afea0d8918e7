//! Keeps values that different threads write off each other's cache lines.

use std::ops::{Deref, DerefMut};

/// A value alone on its cache line (and on its neighbour, which processors fetch along).
#[repr(align(128))]
pub(super) struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Padded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
