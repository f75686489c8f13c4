//! Generates the messages, the client and the server of each contract in `proto/`.

use std::error::Error;
use std::path::PathBuf;

const ROOT: &str = "../../proto";
const QUEUE: &str = "egret/queue/v1/queue.proto";
const VIEWS: &str = "egret/views/v1/views.proto";
const SERIES: &str = "egret/series/v1/series.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let contract = protox::compile([QUEUE, SERIES, VIEWS], [ROOT])?;
    tonic_prost_build::configure().bytes(".").build_server(false).compile_fds(contract.clone())?;
    // The server answers the fast calls with messages that it has encoded itself.
    let server = out.join("server");
    std::fs::create_dir_all(&server)?;
    tonic_prost_build::configure()
        .build_client(false)
        .codec_path("crate::codec::BoundedCodec")
        .out_dir(server)
        .extern_path(".egret.queue.v1.WorkResponse", "crate::EncodedMessage")
        .extern_path(".egret.queue.v1.ProduceResponse", "crate::EncodedMessage")
        .extern_path(".egret.queue.v1.ClaimResponse", "crate::EncodedMessage")
        .extern_path(".egret.queue.v1", "crate::queue::v1")
        .extern_path(".egret.series.v1", "crate::series::v1")
        .extern_path(".egret.views.v1", "crate::views::v1")
        .compile_fds(contract)?;
    Ok(())
}
