//! Door to `handle` calls.
