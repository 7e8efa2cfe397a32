//! `echo-server tcp://[::1]:4099`: the echo service at that address.

use sunrpc::svc::{Call, Outcome, RpcError};
use sunrpc_transports::Server;

sunrpc::include_program!(echo);

struct Echo;

impl echo::EchoV1 for Echo {
    fn say(&self, _: &mut Call<'_>, arg: echo::blob) -> Outcome<echo::blob> {
        Outcome::Done(echo::blob { data: arg.data })
    }

    fn sum(&self, _: &mut Call<'_>, a: i64, b: i64) -> Outcome<i64> {
        a.checked_add(b).ok_or(RpcError::SystemErr).into()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("tcp://[::1]:4099".into());
    let server = Server::builder().program(echo::EchoV1Server::new(Echo)).listen(&url)?.build()?;
    println!("{}", server.urls().join("\n"));
    Ok(server.run()?)
}
