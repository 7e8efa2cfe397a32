//! Door to `stat` calls.
