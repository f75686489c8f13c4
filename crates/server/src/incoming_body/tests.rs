//! What of a body is counted.

use std::time::Duration;

use egret_base::settings::ByteSize;
use futures_util::{FutureExt, StreamExt, stream};
use http_body_util::BodyExt;

use super::*;
use crate::config::ServerConfig;
use crate::quota::{Holder, Quotas, Resource};

const LIMIT: PaceLimit = PaceLimit { timeout: Duration::from_secs(30), bytes_per_second: 1_024 };

/// What is held of bodies, and a permit.
fn permit(resource: Resource) -> (Arc<Quotas>, Arc<Permit>) {
    let quotas =
        Quotas::new(&ServerConfig { body_memory_max: ByteSize::mib(1), ..ServerConfig::default() });
    let holder = Holder { token_id: "a", tenant: "one" };
    let permit = quotas.acquire(holder, resource);
    (quotas, Arc::new(permit.unwrap()))
}

fn reserved_bytes(quotas: &Quotas) -> u64 {
    quotas.in_use()[Resource::BodyMemory as usize]
}

async fn read(body: &mut IncomingBody) -> Result<(), String> {
    let frame = body.frame().await.expect("there is more");
    frame.map(|_| ()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_whole_body_is_counted_as_it_comes() {
    let (quotas, permit) = permit(Resource::Request);
    let pieces =
        [40_000, 40_000, 400_000, 400_000].map(|size| Ok::<_, RequestError>(vec![7; size]));
    let body = Body::from_stream(stream::iter(pieces));
    let mut body = IncomingBody::new(body, BodyKind::Whole, Some(permit), LIMIT);
    for expected in [0, 2 * (80_000 - UNCOUNTED_BYTES_MAX), 2 * (480_000 - UNCOUNTED_BYTES_MAX)] {
        read(&mut body).await.unwrap();
        assert_eq!(reserved_bytes(&quotas), expected);
    }
    let refused = read(&mut body).await.unwrap_err();
    assert!(refused.contains("server.body_memory_max"), "{refused}");
    drop(body);
    assert_eq!(reserved_bytes(&quotas), 0);
}

#[tokio::test]
async fn a_message_is_counted_once_its_length_is_known() {
    let message =
        |length: u32| [&[0], &length.to_be_bytes()[..], &vec![7; length as usize]].concat();
    for (resource, after) in [(Resource::Stream, 0), (Resource::Request, 100_000)] {
        let (quotas, permit) = permit(resource);
        let bytes = [message(3), message(100_000), message(0), message(9)].concat();
        let pieces = [&bytes[..10], &bytes[10..100], &bytes[100..]];
        let pieces = pieces.map(|piece| Ok::<_, RequestError>(piece.to_vec()));
        let body = Body::from_stream(stream::iter(pieces));
        let mut body = IncomingBody::new(body, BodyKind::Grpc, Some(permit), LIMIT);
        for expected in [0, 100_000, after] {
            read(&mut body).await.unwrap();
            assert_eq!(reserved_bytes(&quotas), expected);
        }
        drop(body);
        assert_eq!(reserved_bytes(&quotas), 0);
    }
}

#[tokio::test]
async fn the_server_waits_for_a_body_but_not_between_messages() {
    for (kind, resource, begun, waits) in [
        (BodyKind::Whole, Resource::Request, &b"{"[..], true),
        (BodyKind::Streamed, Resource::Stream, b"m", true),
        (BodyKind::Grpc, Resource::Request, &[0], true),
        (BodyKind::Grpc, Resource::Stream, &[0, 0, 0, 0, 1, 7], false),
        (BodyKind::Grpc, Resource::Stream, &[0, 0, 0], true),
    ] {
        let (_, permit) = permit(resource);
        let mut body = IncomingBody::new(body_silent_after(begun), kind, Some(permit), LIMIT);
        read(&mut body).await.unwrap();
        assert!(body.frame().now_or_never().is_none());
        let found = body.deadline.pace.is_waiting();
        assert_eq!(found, waits, "{kind:?} {resource:?} {begun:?}");
    }
}

#[tokio::test]
async fn a_silent_client_is_ended() {
    let (_, permit) = permit(Resource::Request);
    let limit = PaceLimit { timeout: Duration::from_millis(1), ..LIMIT };
    let mut body = IncomingBody::new(body_silent_after(b"{"), BodyKind::Whole, Some(permit), limit);
    read(&mut body).await.unwrap();
    let text = read(&mut body).await.unwrap_err();
    assert!(text.contains("server.transfer_rate_min"), "{text}");
}

/// A body that begins and never ends.
fn body_silent_after(begun: &[u8]) -> Body {
    let begin = stream::iter([Ok::<_, RequestError>(begun.to_vec())]);
    Body::from_stream(begin.chain(stream::pending()))
}
