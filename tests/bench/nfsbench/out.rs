//! Bytes on their way out of one connection: small records from a buffer, large payloads from where they lie.

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use socket2::Socket;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Sent bytes are cut off the buffer from this size on, should it never run empty.
const COMPACT: usize = 1 << 20;

enum Piece {
    /// That many bytes of the buffer.
    Memory(usize),
    /// That many bytes of the payload, from `offset` on.
    Payload { offset: usize, left: usize },
}

/// Bytes that a pipe holds, and the most that is read from a file at once.
const PIPE: usize = 1 << 20;

/// Where large payloads come from.
pub(crate) enum Payload {
    /// The same bytes for every offset.
    Memory(Vec<u8>),
    /// A file, by sendfile.
    File(File),
    /// A file, read into a buffer and sent from there.
    Copied(File),
    /// A file, spliced into a pipe and from there into the socket.
    Spliced(File),
}

/// What lies between a file and a socket.
#[derive(Default)]
struct Between {
    /// Read and not yet sent.
    copied: Vec<u8>,
    at: usize,
    pipe: Option<(OwnedFd, OwnedFd)>,
    in_pipe: usize,
}

impl Payload {
    fn send(
        &self,
        between: &mut Between,
        socket: &Socket,
        offset: usize,
        left: usize,
        flags: i32,
    ) -> io::Result<usize> {
        match self {
            Self::Memory(bytes) => {
                socket.send_with_flags(bytes.get(..left.min(bytes.len())).unwrap_or_default(), flags)
            }
            Self::File(file) => socket.sendfile(file, offset, NonZeroUsize::new(left)),
            Self::Copied(file) => between.copy(file, socket, offset, left, flags),
            Self::Spliced(file) => between.splice(file, socket, offset, left, flags),
        }
    }
}

impl Between {
    fn copy(
        &mut self,
        file: &File,
        socket: &Socket,
        offset: usize,
        left: usize,
        flags: i32,
    ) -> io::Result<usize> {
        if self.at == self.copied.len() {
            self.copied.resize(left.min(PIPE), 0);
            self.at = 0;
            file.read_exact_at(&mut self.copied, offset as u64)?;
        }
        let n = socket.send_with_flags(self.copied.get(self.at..).unwrap_or_default(), flags)?;
        self.at += n;
        Ok(n)
    }

    fn splice(
        &mut self,
        file: &File,
        socket: &Socket,
        offset: usize,
        left: usize,
        flags: i32,
    ) -> io::Result<usize> {
        if self.pipe.is_none() {
            let ends = pipe_with(PipeFlags::NONBLOCK)?;
            fcntl_setpipe_size(&ends.0, PIPE)?;
            self.pipe = Some(ends);
        }
        let Some((out, into)) = &self.pipe else { return Ok(0) };
        if self.in_pipe == 0 {
            let mut from = offset as u64;
            self.in_pipe = splice(file, Some(&mut from), into, None, left, SpliceFlags::MOVE)?;
        }
        let more = flags & libc::MSG_MORE != 0 || self.in_pipe < left;
        let how = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let how = if more { how | SpliceFlags::MORE } else { how };
        let n = splice(out, None, socket, None, self.in_pipe, how)?;
        self.in_pipe -= n;
        Ok(n)
    }
}

/// An output queue.
#[derive(Default)]
pub(crate) struct Out {
    between: Between,
    /// Append calls here and [`Self::commit`] them.
    pub(crate) buf: Vec<u8>,
    sent: usize,
    committed: usize,
    pieces: VecDeque<Piece>,
}

impl Out {
    /// Queues what was appended to the buffer since the last time.
    #[inline]
    pub(crate) fn commit(&mut self) {
        let n = self.buf.len() - self.committed;
        self.committed = self.buf.len();
        match self.pieces.back_mut() {
            Some(Piece::Memory(len)) => *len += n,
            _ => self.pieces.push_back(Piece::Memory(n)),
        }
    }

    /// Queues `left` bytes of the payload, from `offset` on.
    pub(crate) fn payload(&mut self, offset: usize, left: usize) {
        self.pieces.push_back(Piece::Payload { offset, left });
    }

    /// Whether everything has been handed to the kernel.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Sends until everything is sent or the socket takes no more.
    pub(crate) fn flush(&mut self, socket: &Socket, payload: Option<&Payload>) -> io::Result<()> {
        while let Some(piece) = self.pieces.front() {
            let flags = libc::MSG_NOSIGNAL | if self.pieces.len() > 1 { libc::MSG_MORE } else { 0 };
            let result = match *piece {
                Piece::Memory(n) => {
                    let bytes = self.buf.get(self.sent..self.sent + n).unwrap_or_default();
                    socket.send_with_flags(bytes, flags)
                }
                Piece::Payload { offset, left } => match payload {
                    Some(p) => p.send(&mut self.between, socket, offset, left, flags),
                    None => Err(ErrorKind::InvalidInput.into()),
                },
            };
            match result {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.advance(n),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn advance(&mut self, n: usize) {
        let done = match self.pieces.front_mut() {
            Some(Piece::Memory(len)) => {
                *len -= n;
                self.sent += n;
                *len == 0
            }
            Some(Piece::Payload { offset, left }) => {
                *offset += n;
                *left -= n;
                *left == 0
            }
            None => false,
        };
        if done {
            self.pieces.pop_front();
        }
        if self.sent == self.buf.len() {
            self.buf.clear();
            (self.sent, self.committed) = (0, 0);
        } else if self.sent > COMPACT {
            self.buf.drain(..self.sent);
            self.committed -= self.sent;
            self.sent = 0;
        }
    }
}
