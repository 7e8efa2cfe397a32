//! Door to `cred` calls.
