//! Behaviour of the whole lock manager.
