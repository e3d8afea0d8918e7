//! Inkling's experiments: hint policies, flush policies, comparisons.
