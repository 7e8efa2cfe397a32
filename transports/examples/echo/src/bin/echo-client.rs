//! `echo-client tcp://[::1]:4099 WORDS`: sends the words to the echo service and prints what comes back.

sunrpc::include_program!(echo);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("tcp://[::1]:4099".into());
    let words = args.collect::<Vec<_>>().join(" ");
    let mut c = echo::EchoV1Client::new(sunrpc_transports::connect(&url)?);
    let said = c.say(&echo::blob { data: words.as_bytes().into() })?;
    println!("{}", String::from_utf8_lossy(&said.data.to_vec()));
    println!("40 + 2 = {}", c.sum(40, 2)?);
    Ok(())
}
