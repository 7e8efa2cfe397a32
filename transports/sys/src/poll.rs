//! Waiting for one descriptor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until `fd` can be read or written as asked, or an error is pending on it, or `timeout` is over (`None`: no
/// limit). Waits for the time alone if there is no `fd`. A signal ends the wait early.
pub fn wait(
    fd: Option<BorrowedFd<'_>>,
    read: bool,
    write: bool,
    timeout: Option<Duration>,
) -> io::Result<()> {
    let mut events = 0;
    if read {
        events |= libc::POLLIN;
    }
    if write {
        events |= libc::POLLOUT;
    }
    let mut fds = libc::pollfd { fd: fd.map_or(-1, |f| f.as_raw_fd()), events, revents: 0 };
    // Rounded up: a wait that ends early would only be repeated.
    let ms = timeout.map_or(-1, |t| i32::try_from(t.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    // SAFETY: `fds` is one valid pollfd for the length of the call, and poll ignores a negative descriptor; `fd` is
    // borrowed, so it stays open.
    match unsafe { libc::poll(&mut fds, 1, ms) } {
        -1 => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            e => Err(e),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn ready_descriptors_and_past_times_end_the_wait() {
        let (a, mut b) = UnixStream::pair().unwrap();
        wait(Some(a.as_fd()), false, true, None).unwrap();
        b.write_all(b"x").unwrap();
        wait(Some(a.as_fd()), true, false, None).unwrap();
        wait(None, true, true, Some(Duration::from_micros(1))).unwrap();
    }
}
