//! Door to `open` calls.
