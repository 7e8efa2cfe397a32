//! tarpc over TCP with bincode: the server as its guide builds it, on one thread or on tokio's default runtime, and a
//! client with as many calls under way as told.

#[path = "../../common/mod.rs"]
mod common;

use bytes::Bytes;
use futures::StreamExt;
use serde_bytes::ByteBuf;
use common::{Client, Failure};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tarpc::context::{self, Context};
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_serde::formats::Bincode;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// Largest message: an echo and its frame.
const MAX_MESSAGE: usize = 8 << 20;
/// A call that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

#[tarpc::service]
trait Echo {
    /// Nothing.
    async fn null();
    /// The bytes to send back.
    async fn echo(data: ByteBuf) -> ByteBuf;
}

#[derive(Clone)]
struct Service;

impl Echo for Service {
    async fn null(self, _: Context) {}

    async fn echo(self, _: Context, data: ByteBuf) -> ByteBuf {
        data
    }
}

fn framed(stream: TcpStream) -> Result<Framed<TcpStream, LengthDelimitedCodec>, Failure> {
    stream.set_nodelay(true).map_err(Failure::new)?;
    Ok(LengthDelimitedCodec::builder().max_frame_length(MAX_MESSAGE).new_framed(stream))
}

async fn serve(addr: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(addr).await.map_err(Failure::new)?;
    loop {
        let (stream, _) = listener.accept().await.map_err(Failure::new)?;
        let transport = tarpc::serde_transport::new(framed(stream)?, Bincode::default());
        let requests = BaseChannel::with_defaults(transport).execute(Service.serve());
        tokio::spawn(requests.for_each(|call| async {
            tokio::spawn(call);
        }));
    }
}

#[derive(Clone)]
struct Caller(EchoClient);

fn in_time() -> Context {
    let mut context = context::current();
    context.deadline = Instant::now() + PATIENCE;
    context
}

impl Client for Caller {
    async fn connect(addr: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(addr).await.map_err(Failure::new)?;
        let transport = tarpc::serde_transport::new(framed(stream)?, Bincode::default());
        Ok(Self(EchoClient::new(tarpc::client::Config::default(), transport).spawn()))
    }

    async fn null(&mut self) -> Result<(), Failure> {
        self.0.null(in_time()).await.map_err(Failure::new)
    }

    async fn echo(&mut self, data: Bytes) -> Result<usize, Failure> {
        let reply = self.0.echo(in_time(), ByteBuf::from(data)).await.map_err(Failure::new)?;
        Ok(reply.len())
    }
}

fn main() -> ExitCode {
    common::main::<Caller, _>(serve)
}
