//! Door to `attr` calls.
