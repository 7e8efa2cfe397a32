//! CPU affinity of threads and limits of the process.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};

/// The CPUs that the calling thread may run on, ascending.
///
/// # Errors
/// Those of `sched_getaffinity`, for instance on a machine with more than 1024 CPUs.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: `cpu_set_t` is plain bits; all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the kernel writes at most the given size into `set`, which lives through the call.
    let r = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    let max = libc::CPU_SETSIZE as usize;
    // SAFETY: CPU_ISSET reads bit `c` of `set`, and `c` is below CPU_SETSIZE.
    Ok((0..max).filter(|c| unsafe { libc::CPU_ISSET(*c, &set) }).collect())
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// `EINVAL` if that CPU does not exist or is not allowed.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: as above, the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, so the bit lies inside `set`.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads the given size from `set`, which lives through the call.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Raises the soft limit of open files to the hard one; returns what is allowed now.
///
/// # Errors
/// Those of `getrlimit`; a refused raise is no error.
pub fn raise_open_files() -> io::Result<u64> {
    let mut r = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the kernel writes one `rlimit` through a valid pointer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, r.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the structure is filled.
    let have = unsafe { r.assume_init() };
    let want = libc::rlimit { rlim_cur: have.rlim_max, rlim_max: have.rlim_max };
    // SAFETY: the kernel reads one `rlimit` that lives through the call.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &want) } == 0;
    Ok(if raised { want.rlim_cur } else { have.rlim_cur })
}

/// Sets the process's file mode creation mask and returns the old one. A server that is told modes by its clients
/// wants 0.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: umask takes any value, touches no memory and cannot fail.
    unsafe { libc::umask(mask) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_each_allowed_cpu() {
        for c in allowed_cpus().unwrap() {
            std::thread::spawn(move || {
                pin(c).unwrap();
                assert_eq!(allowed_cpus().unwrap(), [c]);
            })
            .join()
            .unwrap();
        }
        assert!(pin(usize::MAX).is_err());
    }

    #[test]
    fn open_files_can_be_raised() {
        let n = raise_open_files().unwrap();
        assert!(n > 0);
        assert_eq!(raise_open_files().unwrap(), n);
    }
}
