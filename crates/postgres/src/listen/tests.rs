//! A connection that ends before it listens is a failure, after which the listener pauses.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// `AuthenticationOk` and `ReadyForQuery`, outside of a transaction.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

#[tokio::test]
async fn a_connection_that_ends_before_it_listens_is_a_failure() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        for reads_statement in [false, true] {
            let (mut socket, _) = server.accept().await.unwrap();
            let length = socket.read_i32().await.unwrap() - 4;
            let mut startup = vec![0; length as usize];
            socket.read_exact(&mut startup).await.unwrap();
            socket.write_all(WELCOME).await.unwrap();
            if reads_statement {
                socket.read_u8().await.unwrap();
            }
        }
    });
    let mut connection = tokio_postgres::Config::new();
    connection.host("127.0.0.1").port(port).user("u").ssl_mode(SslMode::Disable);
    let channels = ["news".to_owned()];
    for _ in 0..2 {
        let (event_sender, mut events) = mpsc::channel(1);
        let result = listen_once(&connection, NoTls, &channels, &event_sender).await;
        assert!(result.is_err());
        assert_eq!(events.try_recv().ok(), None);
    }
    serving.await.unwrap();
}
