//! The compiler and what it generates.
//!
//! `tests/generated` holds the output for `tests/x`; it is compiled here, and `golden` keeps it up to date. Changes of
//! the generator show there.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod alloc;
mod cli;
mod codec;
mod echo_service;
mod errors;
mod golden;
mod hostile;
mod optional;
mod values;

#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]
pub mod every {
    include!("../generated/every.rs");
}

#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]
pub mod echo {
    include!("../generated/echo.rs");
}
