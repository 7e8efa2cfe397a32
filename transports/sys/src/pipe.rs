//! Page-cache pages on their way from a file to a socket, without a copy.
//!
//! Each thread has a pool of pipes. [`lend`] moves pages of a file into an empty pipe and names it by a number that the
//! same thread uses to [`send`] what is in it, or to copy it. A pipe goes back to the pool when it is empty; one that is
//! not is closed, so that no byte of one reply can turn up in another.

use crate::open::{check, retry};
use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that a pipe is asked to hold: what an unprivileged process may have (`/proc/sys/fs/pipe-max-size`).
pub const CAPACITY: usize = 1 << 20;
/// Pipes of one thread. All pipes of an unprivileged user together may hold 64 MiB before new ones shrink.
const PIPES_MAX: usize = 32;

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

struct Slot {
    pipe: Option<Pipe>,
    /// Bytes in the pipe while it is lent.
    left: usize,
    lent: bool,
    generation: u32,
}

#[derive(Default)]
struct Pool {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Tells this thread's numbers from those of others.
    thread: u16,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(Pool::default());
}

static THREADS: AtomicU32 = AtomicU32::new(1);

fn make() -> io::Result<Pipe> {
    let mut fds = [0; 2];
    // SAFETY: the kernel writes two descriptors to `fds`.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) }.into())?;
    // SAFETY: both were just opened and belong to nobody else.
    let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    // SAFETY: touches no memory.
    let set = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, CAPACITY as libc::c_int) };
    let capacity = match set {
        n if n > 0 => n as usize,
        // SAFETY: touches no memory.
        _ => check(unsafe { libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ) }.into())? as usize,
    };
    Ok(Pipe { read, write, capacity })
}

/// splice(2), at most `len` bytes; from `offset` of `from`, if it is a file.
fn splice(
    from: BorrowedFd<'_>,
    offset: Option<u64>,
    to: BorrowedFd<'_>,
    len: usize,
    more: bool,
) -> io::Result<usize> {
    let mut at = match offset.map(i64::try_from) {
        Some(Err(_)) => return Ok(0),
        Some(Ok(at)) => Some(at),
        None => None,
    };
    let at = at.as_mut().map_or(std::ptr::null_mut(), |at| at as *mut i64);
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | if more { libc::SPLICE_F_MORE } else { 0 };
    retry(|| {
        // SAFETY: `at` is null or points to an i64 of this frame; the descriptors are borrowed.
        let n =
            unsafe { libc::splice(from.as_raw_fd(), at, to.as_raw_fd(), std::ptr::null_mut(), len, flags) };
        check(n as i64).map(|n| n as usize)
    })
}

impl Pool {
    /// A slot with a pipe in it; none if all are lent, or the process may open no more descriptors.
    fn take(&mut self) -> Option<u32> {
        if self.thread == 0 {
            // Threads that splice are workers: they are few, and live long.
            self.thread = THREADS.fetch_add(1, Ordering::Relaxed) as u16;
        }
        if self.free.is_empty() && self.slots.len() < PIPES_MAX {
            self.free.push(self.slots.len() as u32);
            self.slots.push(Slot { pipe: None, left: 0, lent: false, generation: 0 });
        }
        let index = self.free.pop()?;
        let slot = self.slots.get_mut(index as usize)?;
        if slot.pipe.is_none() {
            slot.pipe = make().ok();
        }
        if slot.pipe.is_none() {
            self.free.push(index);
            return None;
        }
        Some(index)
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let (thread, index, generation) = ((id >> 48) as u16, (id >> 32) as u16, id as u32);
        if thread != self.thread {
            return None;
        }
        self.slots.get_mut(usize::from(index)).filter(|s| s.lent && s.generation == generation)
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no such loan on this thread")
}

/// A loan: its number and how many bytes it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loan {
    /// Its number, for the same thread.
    pub id: u64,
    /// Bytes, at least one.
    pub len: usize,
}

/// Moves up to `len` bytes at `offset` of a file into a pipe: pages that are in the cache are referred to, not copied.
/// Others are read, which waits: ask [`residency`](crate::io::residency) before. `None` if no pipe is to be had, or
/// the file has no bytes there. May be shorter than asked.
///
/// # Errors
/// Those of splice(2).
pub fn lend(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Option<Loan>> {
    POOL.with_borrow_mut(|pool| {
        let Some(index) = pool.take() else { return Ok(None) };
        let thread = pool.thread;
        let Some(slot) = pool.slots.get_mut(index as usize) else { return Ok(None) };
        let Some(pipe) = &slot.pipe else { return Ok(None) };
        let want = len.min(pipe.capacity);
        let mut got = 0;
        let mut failed = None;
        while got < want {
            let at = offset.saturating_add(got as u64);
            match splice(file, Some(at), pipe.write.as_fd(), want - got, false) {
                Ok(0) => break,
                Ok(n) => got += n,
                // Full: a range that is not aligned has one page more than its length says.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        if got == 0 {
            pool.free.push(index);
            return failed.map_or(Ok(None), Err);
        }
        slot.left = got;
        slot.lent = true;
        slot.generation = slot.generation.wrapping_add(1);
        let id = u64::from(thread) << 48 | u64::from(index as u16) << 32 | u64::from(slot.generation);
        Ok(Some(Loan { id, len: got }))
    })
}

/// Moves up to `len` bytes of a loan to a socket; `more` tells that further bytes follow at once.
///
/// # Errors
/// Those of splice(2); `UnexpectedEof` if the loan has fewer bytes; `NotFound` if it is not of this thread.
pub fn send(id: u64, socket: BorrowedFd<'_>, len: usize, more: bool) -> io::Result<usize> {
    POOL.with_borrow_mut(|pool| {
        let slot = pool.slot(id).ok_or_else(gone)?;
        let pipe = slot.pipe.as_ref().ok_or_else(gone)?;
        let n = splice(pipe.read.as_fd(), None, socket, len.min(slot.left), more)?;
        slot.left -= n;
        if slot.left == 0 && n < len {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the loan is shorter than was promised",
            ));
        }
        Ok(n)
    })
}

/// Copies what is left of a loan into `bufs`, which must have exactly its length, and leaves it as it is.
///
/// # Errors
/// Those of tee(2) and read(2); `NotFound` if the loan is not of this thread.
pub fn copy(id: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    // tee refers to the same pages from another pipe, and reading that one copies them.
    let second = make()?;
    POOL.with_borrow_mut(|pool| {
        let slot = pool.slot(id).ok_or_else(gone)?;
        let pipe = slot.pipe.as_ref().ok_or_else(gone)?;
        let (from, to, len) = (pipe.read.as_raw_fd(), second.write.as_raw_fd(), slot.left);
        // SAFETY: touches no memory; both descriptors are open.
        let n = retry(|| check(unsafe { libc::tee(from, to, len, libc::SPLICE_F_NONBLOCK) } as i64))?;
        let total: usize = bufs.iter().map(|b| b.len()).sum();
        if n as usize != slot.left || total != slot.left {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the loan does not fit a pipe at once"));
        }
        let mut rest = bufs;
        while !rest.is_empty() {
            let count = rest.len().min(1024) as i32;
            let n = retry(|| {
                // SAFETY: `IoSliceMut` has the layout of `iovec`; each names memory that is borrowed exclusively, and
                // `count` is at most their number.
                let n = unsafe { libc::readv(second.read.as_raw_fd(), rest.as_mut_ptr().cast(), count) };
                check(n as i64)
            })?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            IoSliceMut::advance_slices(&mut rest, n as usize);
        }
        Ok(())
    })
}

/// Ends a loan. Its pipe is used again if it is empty.
pub fn release(id: u64) {
    POOL.with_borrow_mut(|pool| {
        let Some(slot) = pool.slot(id) else { return };
        slot.lent = false;
        if slot.left > 0 {
            slot.pipe = None;
            slot.left = 0;
        }
        pool.free.push((id >> 32) as u16 as u32);
    });
}

/// Pipes that this thread has open, and how many of them are lent.
pub fn open() -> (usize, usize) {
    POOL.with_borrow(|p| {
        let open = p.slots.iter().filter(|s| s.pipe.is_some()).count();
        (open, p.slots.iter().filter(|s| s.lent).count())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};
    use std::os::unix::net::UnixStream;

    fn file(len: usize) -> (std::fs::File, Vec<u8>) {
        let mut f = tempfile::tempfile().unwrap();
        let data: Vec<u8> = (0..len as u32).flat_map(|i| (i / 7).to_le_bytes()).take(len).collect();
        f.write_all(&data).unwrap();
        f.rewind().unwrap();
        (f, data)
    }

    #[test]
    fn bytes_arrive_in_order_and_the_pipe_is_used_again() {
        let (f, data) = file(200_000);
        let (mut a, b) = UnixStream::pair().unwrap();
        for _ in 0..5 {
            let l = lend(f.as_fd(), 1000, 150_000).unwrap().unwrap();
            assert_eq!(l.len, 150_000);
            let mut got = vec![0; l.len];
            let (mut sent, mut read) = (0, 0);
            while read < l.len {
                sent += send(l.id, b.as_fd(), l.len - sent, false)
                    .or_else(|e| match e.kind() {
                        io::ErrorKind::WouldBlock => Ok(0),
                        _ => Err(e),
                    })
                    .unwrap();
                read += a.read(&mut got[read..sent]).unwrap();
            }
            assert!(got == data[1000..151_000]);
            release(l.id);
            assert!(send(l.id, b.as_fd(), 1, false).is_err(), "the loan is over");
        }
        assert_eq!(open(), (1, 0));
    }

    #[test]
    fn a_pipe_with_bytes_left_is_not_used_again() {
        let (f, data) = file(100_000);
        let l = lend(f.as_fd(), 0, 50_000).unwrap().unwrap();
        release(l.id);
        assert_eq!(open(), (0, 0));
        let l = lend(f.as_fd(), 50_000, 100).unwrap().unwrap();
        let mut got = [0; 100];
        copy(l.id, &mut [IoSliceMut::new(&mut got)]).unwrap();
        assert_eq!(got, data[50_000..50_100]);
        // A copy leaves the loan as it is.
        copy(l.id, &mut [IoSliceMut::new(&mut got)]).unwrap();
        release(l.id);
    }

    #[test]
    fn there_are_only_so_many_pipes_and_nothing_at_the_end_of_a_file() {
        let (f, _) = file(10_000);
        assert_eq!(lend(f.as_fd(), 10_000, 5).unwrap(), None);
        assert_eq!(lend(f.as_fd(), u64::MAX, 5).unwrap(), None);
        let loans: Vec<_> = std::iter::from_fn(|| lend(f.as_fd(), 0, 4096).unwrap()).collect();
        assert_eq!((loans.len(), open()), (PIPES_MAX, (PIPES_MAX, PIPES_MAX)));
        let id = loans[0].id;
        std::thread::spawn(move || assert!(copy(id, &mut []).is_err(), "another thread's")).join().unwrap();
        loans.iter().for_each(|l| release(l.id));
        assert_eq!(open(), (0, 0));
    }

    #[test]
    fn without_a_descriptor_left_nothing_is_lent_until_there_is_one() {
        const NAME: &str = "pipe::tests::without_a_descriptor_left_nothing_is_lent_until_there_is_one";
        if std::env::var_os("SUNRPC_TEST_ALONE").is_none() {
            // In a process of its own: other tests need descriptors.
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            let out = again.args(["--exact", NAME]).env("SUNRPC_TEST_ALONE", "yes").output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(out.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let (f, _) = file(10_000);
        let all: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        assert_eq!(lend(f.as_fd(), 0, 4096).unwrap(), None);
        drop(all);
        release(lend(f.as_fd(), 0, 4096).unwrap().unwrap().id);
    }

    #[test]
    fn an_unaligned_range_that_does_not_fit_comes_short() {
        let (f, data) = file((1 << 20) + 8192);
        let l = lend(f.as_fd(), 100, CAPACITY).unwrap().unwrap();
        assert!(l.len >= CAPACITY - 4096 && l.len <= CAPACITY, "{}", l.len);
        let mut got = vec![0; l.len];
        copy(l.id, &mut [IoSliceMut::new(&mut got)]).unwrap();
        assert!(got == data[100..100 + l.len]);
        release(l.id);
    }
}
