#!/usr/bin/env bash
# Passes every check and test of the project, installing what they need. The README's test command.
#
#   tests/run.sh            everything
#   tests/run.sh --fast     without the kernel client in the guest
set -euo pipefail
cd "$(dirname "$0")/.."
fast=no
[ "${1:-}" = --fast ] && fast=yes

step() { printf '\n== %s\n' "$*"; }

step "toolchain"
if ! command -v cargo >/dev/null; then
  echo "cargo is missing: install Rust 1.90 or later (https://rustup.rs), then run this again" >&2
  exit 1
fi
cargo --version
for part in rustfmt clippy; do
  cargo ${part/rustfmt/fmt} --version >/dev/null 2>&1 || rustup component add "$part"
done

step "formatting"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
cargo clippy -p sunrpc -p sunrpc-transports --no-default-features --locked -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features --locked

step "the server, as released"
cargo build --release --locked -p nfsd

target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
# Runs a rig that says by status 77 that this machine does not permit it.
rig() {
  local rc=0
  "$@" || rc=$?
  [ $rc -eq 0 ] && return
  [ $rc -eq 77 ] && { echo "SKIPPED: this machine cannot run it; see above"; return; }
  exit $rc
}

if [ $fast = no ]; then
  step "kernel client in the guest"
  rig bash tests/guest/setup.sh
  rig bash tests/guest/run.sh --server "$target/release/nfsd"
  step "pjdfstest through the kernel client"
  rig bash tests/guest/pjdfstest.sh --server "$target/release/nfsd"
fi

step "late acknowledgements and lost packets"
rig bash tests/relay/run.sh --server "$target/release/nfsd"

step "tests"
cargo test --workspace --all-features --locked

step "faults that the tests have to notice"
bash tests/mutations/run.sh
rig bash tests/relay/run.sh --faults --server "$target/debug/nfsd"

step "commands of the documents"
bash tests/docs.sh
