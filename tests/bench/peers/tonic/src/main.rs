//! tonic: the server as its guide builds it, on one thread, and a client with as many calls under way as told.

#[path = "../../common/mod.rs"]
mod common;

use bytes::Bytes;
use common::{Client, Failure};
use std::net::SocketAddr;
use std::process::ExitCode;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

include!(concat!(env!("OUT_DIR"), "/bench.Echo.rs"));

/// Largest message: an echo and its frame.
const MAX_MESSAGE: usize = 8 << 20;
/// Flow-control windows of HTTP/2, large enough never to stop an echo.
const WINDOW: u32 = 64 << 20;

/// Nothing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// The bytes to send back, not copied on decoding.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Blob {
    /// Anything.
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
}

struct Service;

#[tonic::async_trait]
impl echo_server::Echo for Service {
    async fn null(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn echo(&self, request: Request<Blob>) -> Result<Response<Blob>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

async fn serve(addr: SocketAddr) -> Result<(), Failure> {
    let service = echo_server::EchoServer::new(Service)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE);
    Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .add_service(service)
        .serve(addr)
        .await
        .map_err(Failure::new)
}

#[derive(Clone)]
struct Caller(echo_client::EchoClient<Channel>);

impl Client for Caller {
    async fn connect(addr: SocketAddr) -> Result<Self, Failure> {
        let channel = Endpoint::from_shared(format!("http://{addr}"))
            .map_err(Failure::new)?
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .connect()
            .await
            .map_err(Failure::new)?;
        let client = echo_client::EchoClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        Ok(Self(client))
    }

    async fn null(&mut self) -> Result<(), Failure> {
        self.0.null(Request::new(Empty {})).await.map(drop).map_err(Failure::new)
    }

    async fn echo(&mut self, data: Bytes) -> Result<usize, Failure> {
        let reply = self.0.echo(Request::new(Blob { data })).await.map_err(Failure::new)?;
        Ok(reply.into_inner().data.len())
    }
}

fn main() -> ExitCode {
    common::main::<Caller, _>(serve)
}
