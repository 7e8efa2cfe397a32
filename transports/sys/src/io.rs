//! Door to `io` calls.
