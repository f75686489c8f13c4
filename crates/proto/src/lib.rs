//! The gRPC contracts as Rust code, generated from `proto/` when this crate is built: messages, a
//! client for programs that use Egret, and the server's side for the doors.

pub mod codec;

use bytes::{Buf, BufMut, Bytes};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType};

/// The contract of the queue engine.
pub mod queue {
    /// Version 1 of the contract.
    #[allow(missing_docs, clippy::pedantic, clippy::doc_lazy_continuation)]
    pub mod v1 {
        tonic::include_proto!("egret.queue.v1");

        /// The server side of the contract.
        pub mod server {
            include!(concat!(env!("OUT_DIR"), "/server/egret.queue.v1.rs"));
            pub use queue_server::{Queue, QueueServer};
        }
    }
}

/// The contract of the series engine.
pub mod series {
    /// Version 1 of the contract.
    #[allow(missing_docs, clippy::pedantic, clippy::doc_lazy_continuation)]
    pub mod v1 {
        tonic::include_proto!("egret.series.v1");

        /// The server side of the contract.
        pub mod server {
            include!(concat!(env!("OUT_DIR"), "/server/egret.series.v1.rs"));
            pub use series_server::{Series, SeriesServer};
        }
    }
}

/// The contract of the views engine.
pub mod views {
    /// Version 1 of the contract.
    #[allow(missing_docs, clippy::pedantic, clippy::doc_lazy_continuation)]
    pub mod v1 {
        tonic::include_proto!("egret.views.v1");

        /// The server side of the contract.
        pub mod server {
            include!(concat!(env!("OUT_DIR"), "/server/egret.views.v1.rs"));
            pub use views_server::{Views, ViewsServer};
        }
    }
}

/// A message that its sender has encoded: its fields in the wire format of Protocol Buffers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodedMessage(pub Bytes);

impl prost::Message for EncodedMessage {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.0);
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        from: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        // The server only sends these messages.
        prost::encoding::skip_field(wire_type, tag, from, context)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
