//! Typed clients.

use super::proto::{
    PMAP_IPPROTO_TCP, PMAP_IPPROTO_UDP, RpcbprogV2Client, RpcbprogV4Client, pmap, rpcb, rpcb_uaddr,
};
use super::registry::Mapping;
use super::uaddr::{Netid, Uaddr};
use crate::clnt::{CallXprt, Client, ClntError};
use crate::xdr::XdrString;

/// A client of rpcbind version 4.
#[derive(Debug)]
pub struct Rpcb<T>(RpcbprogV4Client<T>);

/// What DUMP tells of a registration.
fn mapping(r: &rpcb) -> Option<Mapping> {
    let netid = Netid::parse(r.r_netid.as_bytes())?;
    let addr = Uaddr::parse(netid, r.r_addr.as_bytes())?;
    Some(Mapping { prog: r.r_prog, vers: r.r_vers, netid, addr })
}

fn entry(prog: u32, vers: u32, netid: &str, addr: Vec<u8>) -> rpcb {
    rpcb {
        r_prog: prog,
        r_vers: vers,
        r_netid: netid.into(),
        r_addr: XdrString(addr),
        // The server takes the owner from who calls, not from here.
        r_owner: "".into(),
    }
}

impl<T: CallXprt> Rpcb<T> {
    /// Over this transport.
    pub fn new(xprt: T) -> Self {
        Rpcb(RpcbprogV4Client::new(xprt))
    }

    /// The client underneath, for credentials and options.
    pub fn client(&mut self) -> &mut Client<T> {
        self.0.client()
    }

    /// Whether anybody answers.
    pub fn null(&mut self) -> Result<(), ClntError> {
        self.0.rpcbproc_null()
    }

    /// Registers. False if the server refuses: another address is registered, or the caller may not.
    pub fn set(&mut self, m: &Mapping) -> Result<bool, ClntError> {
        self.0.rpcbproc_set(&entry(m.prog, m.vers, m.netid.name(), m.addr.to_bytes()))
    }

    /// Takes registrations back: of one kind of transport, or of all. False if there was none that the caller may
    /// remove.
    pub fn unset(&mut self, prog: u32, vers: u32, netid: Option<Netid>) -> Result<bool, ClntError> {
        self.0.rpcbproc_unset(&entry(prog, vers, netid.map_or("", Netid::name), Vec::new()))
    }

    /// Where the program is, as the server answers for this kind of transport. Most servers ignore `netid` and answer
    /// for the transport of the call (RFC 1833 section 2.2.1). `None` if it is not registered.
    pub fn getaddr(&mut self, prog: u32, vers: u32, netid: Netid) -> Result<Option<Uaddr>, ClntError> {
        let rpcb_uaddr(addr) = self.0.rpcbproc_getaddr(&entry(prog, vers, netid.name(), Vec::new()))?;
        Ok(Uaddr::parse(netid, addr.as_bytes()))
    }

    /// Everything registered, without what is on transports or at addresses that [`Netid`] and [`Uaddr`] do not know.
    pub fn dump(&mut self) -> Result<Vec<Mapping>, ClntError> {
        let list = self.0.rpcbproc_dump()?;
        Ok(list.iter().filter_map(|l| mapping(&l.rpcb_map)).collect())
    }
}

/// A client of the port mapper, version 2, which knows TCP and UDP over IPv4.
#[derive(Debug)]
pub struct Pmap<T>(RpcbprogV2Client<T>);

impl<T: CallXprt> Pmap<T> {
    /// Over this transport.
    pub fn new(xprt: T) -> Self {
        Pmap(RpcbprogV2Client::new(xprt))
    }

    /// The port of a program; `None` if it is not registered.
    pub fn getport(&mut self, prog: u32, vers: u32, udp: bool) -> Result<Option<u16>, ClntError> {
        let prot = if udp { PMAP_IPPROTO_UDP } else { PMAP_IPPROTO_TCP };
        let port = self.0.pmapproc_getport(&pmap { prog, vers, prot, port: 0 })?;
        Ok(u16::try_from(port).ok().filter(|p| *p != 0))
    }

    /// Everything registered: program, version, protocol (6 is TCP, 17 is UDP), port.
    pub fn dump(&mut self) -> Result<Vec<(u32, u32, u32, u32)>, ClntError> {
        let list = self.0.pmapproc_dump()?;
        Ok(list.iter().map(|l| (l.map.prog, l.map.vers, l.map.prot, l.map.port)).collect())
    }
}
