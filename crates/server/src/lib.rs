//! Inkling's PostgreSQL wire server.
