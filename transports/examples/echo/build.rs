//! Makes Rust of the .x files.

fn main() {
    for x in ["echo.x", "timer.x"] {
        if let Err(e) = sunrpc_rpcgen::compile(x) {
            panic!("{e}");
        }
    }
}
