//! A server that sends nonsense: every call ends with an error or an answer, never with a panic,
//! and no claimed length is believed before its bytes have come.

use std::sync::LazyLock;

use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;

use super::*;
use crate::wire::Answer;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
});

/// A session with a server that sends these bytes and closes; and the answer to a statement.
fn talk(bytes: &[u8]) -> Result<Answer, WireError> {
    let directory = tempfile::tempdir().unwrap();
    let listener = {
        let _inside = RUNTIME.enter();
        UnixListener::bind(directory.path().join(".s.PGSQL.1")).unwrap()
    };
    let serving = async {
        let (mut client, _) = listener.accept().await.unwrap();
        // The client may have hung up over the first bytes already.
        let _ = client.write_all(bytes).await;
        let _ = client.shutdown().await;
        // A connection that asks to cancel is accepted and closed; the first client may go on
        // sending.
        loop {
            drop(listener.accept().await.unwrap());
        }
    };
    let talking = async {
        let startup = Startup::default();
        let mut session = Session::connect(directory.path(), 1, &startup).await?;
        session.query("select 1", &[], 3, 200).await
    };
    RUNTIME.block_on(async {
        tokio::select! {
            answer = talking => answer,
            () = serving => unreachable!("it listens for ever"),
        }
    })
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// What a server sends in a session of one statement with one row.
fn conversation() -> Vec<u8> {
    let column = b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
    [
        message(b'R', &[0; 4]),
        message(b'S', b"server_version\x0015.1\0"),
        message(b'K', &[1; 8]),
        message(b'Z', b"I"),
        message(b'1', b""),
        message(b'2', b""),
        message(b'T', column),
        message(b'N', b"SNOTICE\0Mhello\0\0"),
        message(b'D', b"\0\x01\0\0\0\x011"),
        message(b'C', b"SELECT 1\0"),
        message(b'Z', b"I"),
    ]
    .concat()
}

#[test]
fn the_undamaged_conversation_gives_an_answer() {
    let answer = talk(&conversation()).unwrap();
    assert_eq!(answer.rows, [[Some("1".to_owned())]]);
    assert_eq!(answer.command_tag, "SELECT 1");
}

#[test]
fn a_claimed_length_is_not_believed() {
    let huge = b"E\x7f\xff\xff\xff";
    let error = talk(huge).unwrap_err().to_string();
    assert!(error.contains("of 2147483643 bytes"), "{error}");
    let negative = b"R\xff\xff\xff\xff";
    assert!(matches!(talk(negative), Err(WireError::Protocol(_))));
    let unfinished = [&message(b'R', &[0; 4])[..], b"S\0\xff\0\0"].concat();
    assert!(matches!(talk(&unfinished), Err(WireError::Lost(_))));
}

#[test]
fn other_authentication_is_refused_by_name() {
    let error = talk(&message(b'R', &[0, 0, 0, 5, 1, 2, 3, 4])).unwrap_err();
    assert!(matches!(error, WireError::Authentication { method: "md5 password" }));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(talk(&bytes).is_err());
    }

    #[test]
    fn damaged_conversations_never_panic(
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = conversation();
        for (at, byte) in damages {
            let position = at.index(bytes.len());
            bytes[position] = byte;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 4);
        let _ = talk(&bytes);
    }
}
