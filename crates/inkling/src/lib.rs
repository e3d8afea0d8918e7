//! Inkling: the embedded API and the program.
