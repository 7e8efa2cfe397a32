//! The service, without a .proto file, so that no protobuf compiler is needed.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let method = |name: &str, route: &str, message: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type(message)
            .output_type(message)
            .codec_path("tonic_prost::ProstCodec")
            .build()
    };
    let service = Service::builder()
        .name("Echo")
        .package("bench")
        .method(method("null", "Null", "crate::Empty"))
        .method(method("echo", "Echo", "crate::Blob"))
        .build();
    Builder::new().compile(&[service]);
}
