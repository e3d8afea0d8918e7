//! From SQL text to the bound tree.

pub mod bound;
