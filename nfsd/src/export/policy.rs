//! Who may use an export, and as whom.

use crate::vfs::Identity;
use crate::vfs::passthrough::IoModes;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use smallvec::SmallVec;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;
use sunrpc::auth::SvcCred;
use sunrpc::msg::flavor;
use sunrpc::xprt::PeerAddr;

/// User and group that squashed callers get unless the configuration says otherwise: nobody.
pub const ANON_ID: u32 = 65534;

/// Word for "this host only" in lists of clients.
pub const THIS_HOST: &str = "localhost";

/// Whose user ids are replaced by the anonymous user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Squash {
    /// User 0 and group 0.
    #[default]
    Root,
    /// Everybody.
    All,
    /// Nobody: user 0 of a client is user 0 here.
    None,
}

/// An authentication flavor as configurations name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SecFlavor {
    /// AUTH_SYS: the client's host asserts user and groups.
    Sys,
    /// AUTH_NONE: everybody is the anonymous user.
    None,
}

impl SecFlavor {
    /// Its number on the wire (RFC 5531 section 8.2), as MOUNT lists it.
    pub fn number(self) -> u32 {
        match self {
            SecFlavor::Sys => flavor::AUTH_SYS,
            SecFlavor::None => flavor::AUTH_NONE,
        }
    }
}

/// The addresses that may use an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    nets: Vec<IpNet>,
}

impl Default for Clients {
    fn default() -> Self {
        Clients::this_host()
    }
}

impl Clients {
    /// This host only: the loopback addresses, and local sockets.
    pub fn this_host() -> Self {
        let v4 = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
        Clients { nets: vec![v4.into(), Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128).into()] }
    }

    /// The clients that these words name: CIDR networks, addresses, or [`THIS_HOST`].
    ///
    /// # Errors
    /// An empty list, or a word that is none of these.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, ClientsError> {
        let mut nets = Vec::new();
        for word in words {
            let word = word.trim();
            if word == THIS_HOST {
                nets.extend(Clients::this_host().nets);
            } else {
                nets.push(parse_net(word)?);
            }
        }
        if nets.is_empty() { Err(ClientsError::Empty) } else { Ok(Clients { nets }) }
    }

    /// The networks.
    pub fn nets(&self) -> &[IpNet] {
        &self.nets
    }

    /// No address but those of this host is admitted.
    pub fn is_this_host(&self) -> bool {
        self.nets.iter().all(|n| n.network().is_loopback() && n.broadcast().is_loopback())
    }

    /// True if the address is among them. An IPv4 address that arrives through an IPv6 socket counts as IPv4.
    #[inline]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.nets.iter().any(|n| n.contains(&ip))
    }
}

impl FromStr for Clients {
    type Err = ClientsError;

    fn from_str(list: &str) -> Result<Self, ClientsError> {
        Clients::parse(list.split(',').filter(|w| !w.trim().is_empty()))
    }
}

fn parse_net(word: &str) -> Result<IpNet, ClientsError> {
    if let Ok(ip) = word.parse::<IpAddr>() {
        return Ok(IpNet::from(ip.to_canonical()));
    }
    let net: IpNet = word.parse().map_err(|_| ClientsError::Word(word.to_owned()))?;
    // A network written in IPv4-mapped form would never match: addresses are compared in their own family.
    match net {
        IpNet::V6(n) if n.prefix_len() >= 96 => match n.addr().to_ipv4_mapped() {
            Some(v4) => Ipv4Net::new(v4, n.prefix_len() - 96)
                .map(|n| n.trunc().into())
                .map_err(|_| ClientsError::Word(word.to_owned())),
            None => Ok(net.trunc()),
        },
        _ => Ok(net.trunc()),
    }
}

/// Why a list of clients cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientsError {
    /// Not a word that names clients.
    #[error(
        "\"{0}\" names no clients: write a network such as 192.168.1.0/24 or fd00::/8, an address, or localhost"
    )]
    Word(String),
    /// No word at all.
    #[error("the list of clients is empty, so nobody could mount: name a network, an address, or localhost")]
    Empty,
}

/// What the configuration says of one export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSettings {
    /// The directory, absolute and without symbolic links.
    pub path: PathBuf,
    /// The name that clients may use instead: absolute, raw bytes.
    pub pseudo: Vec<u8>,
    /// Modifying calls are refused.
    pub read_only: bool,
    /// Modifying calls answer only after their effect is on stable storage.
    pub sync: bool,
    /// Who may use it.
    pub clients: Clients,
    /// Source ports above 1023 are accepted.
    pub insecure: bool,
    /// Whose ids are replaced.
    pub squash: Squash,
    /// The anonymous user.
    pub anon_uid: u32,
    /// The anonymous group.
    pub anon_gid: u32,
    /// Accepted flavors, the preferred one first.
    pub sec: SmallVec<[SecFlavor; 2]>,
    /// How data goes between files and memory.
    pub io: IoModes,
}

impl ExportSettings {
    /// The defaults for a directory: this host only, read-write, stable, root squashed.
    pub fn new(path: PathBuf) -> Self {
        use std::os::unix::ffi::OsStrExt;
        ExportSettings {
            pseudo: path.as_os_str().as_bytes().to_vec(),
            path,
            read_only: false,
            sync: true,
            clients: Clients::this_host(),
            insecure: false,
            squash: Squash::Root,
            anon_uid: ANON_ID,
            anon_gid: ANON_ID,
            sec: SmallVec::from_slice(&[SecFlavor::Sys, SecFlavor::None]),
            io: IoModes::default(),
        }
    }

    /// Judges a client by its address and source port.
    ///
    /// # Errors
    /// [`Refusal`], whose text names the setting that would admit the client.
    #[inline]
    pub fn admit(&self, peer: &PeerAddr) -> Result<(), Refusal> {
        self.judge(peer).map_err(|why| {
            let (client, export) = (address(peer).to_canonical(), self.path.clone());
            match why {
                Why::Address => Refusal::NotAClient { client, export },
                Why::Port(port) => Refusal::SourcePort { client, port, export },
                Why::User(uid) => Refusal::LocalUser { uid, export },
            }
        })
    }

    /// True if [`ExportSettings::admit`] would admit the client; makes no text.
    #[inline]
    pub fn admits(&self, peer: &PeerAddr) -> bool {
        self.judge(peer).is_ok()
    }

    #[inline]
    fn judge(&self, peer: &PeerAddr) -> Result<(), Why> {
        if !self.clients.contains(address(peer)) {
            return Err(Why::Address);
        }
        match peer {
            PeerAddr::Inet(a) if a.port() >= 1024 && !self.insecure => Err(Why::Port(a.port())),
            // The same trust: only root is believed what it says of users.
            PeerAddr::Local { uid, .. } if *uid != 0 && !self.insecure => Err(Why::User(*uid)),
            _ => Ok(()),
        }
    }

    /// Judges the flavor that a caller used.
    ///
    /// # Errors
    /// [`Refusal::Flavor`].
    #[inline]
    pub fn admit_flavor(&self, cred: &SvcCred) -> Result<(), Refusal> {
        let used = cred.flavor();
        if self.sec.iter().any(|f| f.number() == used) {
            return Ok(());
        }
        Err(Refusal::Flavor { flavor: used, export: self.path.clone() })
    }

    /// Makes `who` the identity that a caller's operations use: squashed as configured, the anonymous one for AUTH_NONE.
    /// Squashing root also replaces group 0, as primary and as supplementary group. In place, because it is long.
    #[inline]
    pub fn identify(&self, cred: &SvcCred, who: &mut Identity) {
        who.groups.clear();
        let (SvcCred::Sys { uid, gid, gids }, Squash::None | Squash::Root) = (cred, self.squash) else {
            (who.uid, who.gid) = (self.anon_uid, self.anon_gid);
            return;
        };
        (who.uid, who.gid) = (*uid, *gid);
        who.groups.extend_from_slice(gids);
        if self.squash == Squash::Root {
            if who.uid == 0 {
                who.uid = self.anon_uid;
            }
            let groups = who.groups.iter_mut().chain([&mut who.gid]);
            groups.filter(|g| **g == 0).for_each(|g| *g = self.anon_gid);
        }
    }
}

enum Why {
    Address,
    Port(u16),
    User(u32),
}

fn address(peer: &PeerAddr) -> IpAddr {
    match peer {
        PeerAddr::Inet(a) => a.ip(),
        // A local process is this host.
        PeerAddr::Local { .. } => IpAddr::V4(Ipv4Addr::LOCALHOST),
    }
}

/// Why a client is not served. The text names the flag, and the key of the configuration file, that would admit it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The address is not on the list.
    NotAClient {
        /// Its address.
        client: IpAddr,
        /// The export's directory.
        export: PathBuf,
    },
    /// The source port is one that any user of the client may have.
    SourcePort {
        /// Its address.
        client: IpAddr,
        /// Its port.
        port: u16,
        /// The export's directory.
        export: PathBuf,
    },
    /// A local process of an ordinary user.
    LocalUser {
        /// The user.
        uid: u32,
        /// The export's directory.
        export: PathBuf,
    },
    /// The export does not accept the flavor.
    Flavor {
        /// Its number.
        flavor: u32,
        /// The export's directory.
        export: PathBuf,
    },
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotAClient { client, export } => {
                let len = if client.is_ipv4() { 32 } else { 128 };
                write!(
                    f,
                    "{client} is not among the clients of {}: add --clients {client}/{len} (or `clients` in the \
                     configuration file)",
                    export.display()
                )
            }
            Refusal::SourcePort { client, port, export } => write!(
                f,
                "{client} calls from source port {port}, which any user there may have, and {} wants one below 1024: \
                 add --insecure (or `insecure = true` in the configuration file)",
                export.display()
            ),
            Refusal::LocalUser { uid, export } => write!(
                f,
                "a local process of user {uid} calls, which could pass for any other, and {} wants root: add --insecure \
                 (or `insecure = true` in the configuration file)",
                export.display()
            ),
            Refusal::Flavor { flavor, export } => {
                let name = match *flavor {
                    flavor::AUTH_NONE => "none",
                    flavor::AUTH_SYS => "sys",
                    _ => "other",
                };
                write!(
                    f,
                    "{} does not accept authentication flavor {flavor} ({name}): add it to `sec` in the configuration \
                     file",
                    export.display()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn peer(s: &str) -> PeerAddr {
        PeerAddr::Inet(s.parse().unwrap())
    }

    fn srv() -> ExportSettings {
        ExportSettings::new("/srv".into())
    }

    #[test]
    fn this_host_only_unless_told_otherwise() {
        for ok in ["127.0.0.1:700", "127.8.9.10:1023", "[::1]:1", "[::ffff:127.0.0.1]:700"] {
            assert_eq!(srv().admit(&peer(ok)), Ok(()), "{ok}");
        }
        for no in ["10.0.0.5:700", "[::ffff:10.0.0.5]:700", "[fe80::1]:700", "[::2]:700", "128.0.0.1:700"] {
            assert!(matches!(srv().admit(&peer(no)), Err(Refusal::NotAClient { .. })), "{no}");
        }
        assert_eq!(srv().admit(&PeerAddr::Local { uid: 0, pid: 6 }), Ok(()));
        let e = srv().admit(&PeerAddr::Local { uid: 5, pid: 6 }).unwrap_err().to_string();
        assert!(e.contains("--insecure") && e.contains("user 5"), "{e}");
        let insecure = ExportSettings { insecure: true, ..srv() };
        assert_eq!(insecure.admit(&PeerAddr::Local { uid: 5, pid: 6 }), Ok(()));
        assert!(Clients::this_host().is_this_host());
    }

    #[test]
    fn refusals_name_the_setting() {
        let e = srv().admit(&peer("[::ffff:10.0.0.5]:700")).unwrap_err().to_string();
        assert_eq!(
            e,
            "10.0.0.5 is not among the clients of /srv: add --clients 10.0.0.5/32 (or `clients` in the configuration file)"
        );
        let e = srv().admit(&peer("[fd00::7]:700")).unwrap_err().to_string();
        assert!(e.contains("--clients fd00::7/128"), "{e}");
        let e = srv().admit(&peer("127.0.0.1:1024")).unwrap_err().to_string();
        assert!(e.contains("--insecure") && e.contains("`insecure = true`") && e.contains("1024"), "{e}");
        let mut x = srv();
        x.sec = smallvec![SecFlavor::Sys];
        let e = x.admit_flavor(&SvcCred::None).unwrap_err().to_string();
        assert!(e.contains("`sec`"), "{e}");
    }

    #[test]
    fn a_list_replaces_this_host() {
        let mut x = srv();
        x.clients = "10.1.0.0/16, fd00::/8,192.0.2.9".parse().unwrap();
        for ok in ["10.1.2.3:1", "[fd12::1]:1", "192.0.2.9:1", "[::ffff:10.1.2.3]:1"] {
            assert_eq!(x.admit(&peer(ok)), Ok(()), "{ok}");
        }
        for no in ["10.2.0.1:1", "192.0.2.8:1", "127.0.0.1:1"] {
            assert!(x.admit(&peer(no)).is_err(), "{no}");
        }
        assert!(x.admit(&PeerAddr::Local { uid: 0, pid: 1 }).is_err());
        x.clients = "10.1.0.0/16,localhost".parse().unwrap();
        assert_eq!(x.admit(&peer("127.0.0.1:1")), Ok(()));
        assert!(!x.clients.is_this_host());
        x.insecure = true;
        assert_eq!(x.admit(&peer("10.1.2.3:40000")), Ok(()));
    }

    #[test]
    fn mapped_networks_and_host_bits_mean_what_they_say() {
        let c: Clients = "::ffff:10.1.2.3/112,172.16.5.5/12".parse().unwrap();
        assert!(c.contains("10.1.9.9".parse().unwrap()));
        assert!(!c.contains("10.2.0.1".parse().unwrap()));
        assert!(c.contains("172.31.0.1".parse().unwrap()));
        let everyone: Clients = "0.0.0.0/0,::/0".parse().unwrap();
        assert!(everyone.contains("203.0.113.1".parse().unwrap()) && !everyone.is_this_host());
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["", ",", "10.0.0.0/33", "host.example", "10.0.0", "*"] {
            assert!(bad.parse::<Clients>().is_err(), "{bad:?}");
        }
    }

    fn sys(uid: u32, gid: u32, gids: &[u32]) -> SvcCred {
        SvcCred::Sys { uid, gid, gids: SmallVec::from_slice(gids) }
    }

    fn id(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        Identity { uid, gid, groups: SmallVec::from_slice(groups) }
    }

    #[test]
    fn squash_decides_whose_ids_are_replaced() {
        let mut x = srv();
        (x.anon_uid, x.anon_gid) = (501, 502);
        let callers = [sys(0, 0, &[0, 7]), sys(1000, 100, &[0, 7]), sys(1000, 0, &[]), SvcCred::None];
        let table = [
            (
                Squash::Root,
                [id(501, 502, &[502, 7]), id(1000, 100, &[502, 7]), id(1000, 502, &[]), id(501, 502, &[])],
            ),
            (Squash::All, [id(501, 502, &[]), id(501, 502, &[]), id(501, 502, &[]), id(501, 502, &[])]),
            (Squash::None, [id(0, 0, &[0, 7]), id(1000, 100, &[0, 7]), id(1000, 0, &[]), id(501, 502, &[])]),
        ];
        for (squash, want) in table {
            x.squash = squash;
            for (cred, want) in callers.iter().zip(&want) {
                // Nothing of an earlier caller stays.
                let mut who = Identity { uid: 7, gid: 7, groups: smallvec![7, 0, 7] };
                x.identify(cred, &mut who);
                assert_eq!(who, *want, "{squash:?} {cred:?}");
            }
        }
    }
}
