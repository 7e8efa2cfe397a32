//! Door to `dir` calls.
