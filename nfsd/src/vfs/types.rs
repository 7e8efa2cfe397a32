//! Values that cross the file-system seam.

use smallvec::SmallVec;
use std::ops::ControlFlow;
use sunrpc::page::{Payload, Shared};

/// Longest handle of a backend, in bytes: what is left of a 64-byte NFSv3 handle after version, kind, export and MAC.
pub const HANDLE_MAX: usize = 42;

/// A backend's handle for an object: opaque to everybody else, persistent across rename and restart.
#[derive(Clone, Copy)]
pub struct Handle {
    len: u8,
    bytes: [u8; HANDLE_MAX],
}

impl Handle {
    /// A handle of these bytes; `None` if there are more than [`HANDLE_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut h = Handle { len: u8::try_from(bytes.len()).ok()?, bytes: [0; HANDLE_MAX] };
        h.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(h)
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(HANDLE_MAX)]
    }
}

impl PartialEq for Handle {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Handle {}

impl std::hash::Hash for Handle {
    #[inline]
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Whose rights an operation uses: the caller's identity after squashing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, in the order received.
    pub groups: SmallVec<[u32; 16]>,
}

/// Type of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileType {
    Regular,
    Directory,
    Block,
    Char,
    Symlink,
    Socket,
    Fifo,
}

/// A point in time since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub sec: i64,
    /// Nanoseconds, below 10^9.
    pub nsec: u32,
}

/// Attributes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Type.
    pub ftype: FileType,
    /// Permission bits with set-id and sticky bits: the low 12 bits of the mode.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// Device number of devices.
    pub rdev: (u32, u32),
    /// Identifies the file system; two objects with equal `fsid` and `fileid` are the same object.
    pub fsid: u64,
    /// Identifies the object within its file system.
    pub fileid: u64,
    /// Last access.
    pub atime: Time,
    /// Last modification of the contents.
    pub mtime: Time,
    /// Last change of contents or attributes.
    pub ctime: Time,
}

impl Attr {
    /// An object of this type and number that everybody may read, owned by root, without contents and born at the epoch.
    pub fn new(ftype: FileType, fileid: u64) -> Self {
        let dir = ftype == FileType::Directory;
        let epoch = Time::default();
        Attr {
            ftype,
            mode: if dir { 0o555 } else { 0o444 },
            nlink: if dir { 2 } else { 1 },
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            rdev: (0, 0),
            fsid: 0,
            fileid,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
        }
    }

    /// The rights to read (4), write (2) and execute (1) that the mode bits give a caller. The superuser reads and writes
    /// everything, and executes what anybody may execute.
    #[inline]
    pub fn rights(&self, id: &Identity) -> u32 {
        if id.uid == 0 {
            return if self.ftype == FileType::Directory || self.mode & 0o111 != 0 { 7 } else { 6 };
        }
        let shift = match () {
            () if id.uid == self.uid => 6,
            () if id.gid == self.gid || id.groups.contains(&self.gid) => 3,
            () => 0,
        };
        (self.mode >> shift) & 7
    }

    /// Which of the rights in `want` the mode bits give a caller.
    pub fn access(&self, id: &Identity, want: Access) -> Access {
        Access::granted(self.rights(id), self.ftype == FileType::Directory, want)
    }
}

/// An object found or made, with its attributes.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its handle.
    pub handle: Handle,
    /// Its attributes, taken from the object that `handle` names.
    pub attr: Attr,
}

/// How a time is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leave as it is.
    #[default]
    Keep,
    /// The server's clock; whoever may write the file may do this.
    ServerNow,
    /// A value from the caller; only the owner may do this.
    To(Time),
}

/// Attributes to set; `None` and `Keep` leave theirs alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: SetTime,
    pub mtime: SetTime,
}

/// How a regular file is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateHow {
    /// Use an existing regular file (setting `size` of it if asked), else create.
    Unchecked(SetAttr),
    /// Fail if the name exists.
    Guarded(SetAttr),
    /// Create with this verifier; succeeds again if the object was made with the same one.
    Exclusive([u8; 8]),
}

/// A special file to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// Character device, major and minor.
    Char(u32, u32),
    /// Block device, major and minor.
    Block(u32, u32),
    /// Socket.
    Socket,
    /// Fifo.
    Fifo,
}

/// Durability of a write (RFC 1813 section 3.3.7), weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// May be lost until a commit.
    Unstable,
    /// Data, and the metadata needed to find it, are stable.
    DataSync,
    /// Data and all metadata are stable.
    FileSync,
}

/// Outcome of a read.
#[derive(Debug, Clone, Copy)]
pub struct ReadDone {
    /// Bytes placed in the buffers.
    pub len: usize,
    /// The read reached the end of the file.
    pub eof: bool,
    /// Attributes after the read.
    pub attr: Attr,
}

/// Outcome of lending.
#[derive(Debug)]
pub struct LendDone {
    /// The bytes, at least one.
    pub data: Payload<Shared>,
    /// They reach the end of the file.
    pub eof: bool,
    /// Attributes after they were taken.
    pub attr: Attr,
}

/// Outcome of a write.
#[derive(Debug, Clone, Copy)]
pub struct WriteDone {
    /// Bytes written; fewer than asked is legal.
    pub len: usize,
    /// Durability reached.
    pub committed: Stability,
    /// Attributes after the write.
    pub attr: Attr,
}

/// A set of access rights (RFC 1813 section 3.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access(pub u32);

#[allow(missing_docs)]
impl Access {
    pub const READ: u32 = 0x01;
    pub const LOOKUP: u32 = 0x02;
    pub const MODIFY: u32 = 0x04;
    pub const EXTEND: u32 = 0x08;
    pub const DELETE: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;

    /// Which of `want` follows from the rights to read (4), write (2) and execute (1) of a directory or another object.
    pub fn granted(rights: u32, dir: bool, want: Access) -> Access {
        let table: &[(u32, u32)] = if dir {
            &[
                (Access::READ, 4),
                (Access::LOOKUP, 1),
                (Access::MODIFY, 3),
                (Access::EXTEND, 3),
                (Access::DELETE, 3),
            ]
        } else {
            &[(Access::READ, 4), (Access::EXECUTE, 1), (Access::MODIFY, 2), (Access::EXTEND, 2)]
        };
        let got = table.iter().filter(|(_, need)| rights & need == *need).fold(0, |a, (right, _)| a | right);
        Access(got & want.0)
    }
}

/// What a directory listing needs for each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaddirWant {
    /// Handles and attributes too.
    pub plus: bool,
    /// About how many bytes of reply there is room for; a hint for how far to read ahead.
    pub bytes: u32,
}

/// One entry of a listing.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// Raw name.
    pub name: &'a [u8],
    /// Object number.
    pub fileid: u64,
    /// Position after this entry.
    pub cookie: u64,
    /// Handle and attributes, when asked for and to be had. An entry that vanished in between is either left out
    /// or reported without them. `..` of the root names the root.
    pub entry: Option<&'a Entry>,
}

/// Receives a listing.
pub trait DirSink {
    /// Takes one entry; `Break` means that it did **not** fit and the listing ends before it.
    fn entry(&mut self, e: &DirEntry<'_>) -> ControlFlow<()>;
}

/// Space and limits of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStat {
    /// Size, free and available to the caller, in bytes.
    pub bytes: (u64, u64, u64),
    /// Object slots: total, free, available.
    pub files: (u64, u64, u64),
    /// Longest name, in bytes.
    pub name_max: u32,
    /// Most links to an object.
    pub link_max: u32,
    /// Largest file, in bytes.
    pub max_file_size: u64,
    /// Granularity of times, in nanoseconds.
    pub time_delta_ns: u32,
    /// Only privileged callers may change an object's owner.
    pub chown_restricted: bool,
    /// Symbolic and hard links exist.
    pub links: bool,
}

impl Default for FsStat {
    /// Nothing free, no links: a file system that cannot be changed.
    fn default() -> Self {
        FsStat {
            bytes: (0, 0, 0),
            files: (0, 0, 0),
            name_max: 255,
            link_max: 1,
            max_file_size: i64::MAX as u64,
            time_delta_ns: 1,
            chown_restricted: true,
            links: false,
        }
    }
}
