//! Hostile receivers and name servers, on real sockets.

mod tls;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use egret_outgoing::{
    Answer, ClientOptions, Destinations, Lookup, LookupFuture, OutgoingClient, OutgoingError,
    is_confidential,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Long enough that a test ends by another reason.
const LONG: Duration = Duration::from_secs(60);

/// Answers every request in the same way and passes on what it got.
async fn serve(answer: String) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 16 << 10];
            let read = connection.read(&mut request).await.unwrap_or(0);
            let _ = sender.send(String::from_utf8_lossy(&request[..read]).into_owned());
            // A client that has had enough closes.
            let _ = connection.write_all(answer.as_bytes()).await;
        }
    });
    (port, receiver)
}

fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
}

fn client(destinations: Destinations) -> OutgoingClient {
    let options =
        ClientOptions { timeout: Some(LONG), follows_redirects: true, ..ClientOptions::default() };
    OutgoingClient::new(destinations, &options).unwrap()
}

async fn get(client: &OutgoingClient, url: &str) -> Result<Answer, OutgoingError> {
    let authorize = |request: egret_outgoing::OutgoingRequest| request.basic_auth("me", "secret");
    client.get_configured(url, |request| request, authorize).await
}

/// A name server that gives another answer each time, and the last one ever after.
struct ChangingLookup {
    answers: Vec<IpAddr>,
    lookups: AtomicUsize,
}

impl Lookup for ChangingLookup {
    fn lookup(&self, _: &str) -> LookupFuture {
        let asked = self.lookups.fetch_add(1, Ordering::SeqCst);
        let address = self.answers[asked.min(self.answers.len() - 1)];
        Box::pin(async move { Ok::<_, io::Error>(vec![address]) })
    }
}

#[tokio::test]
async fn a_name_is_resolved_once_and_leads_only_to_what_was_checked() {
    let (port, mut received) = serve(ok("")).await;
    // TEST-NET-1 counts as special, so that an address must be allowed which nothing listens on.
    let harmless: IpAddr = Ipv4Addr::new(127, 0, 0, 99).into();
    let local: IpAddr = Ipv4Addr::LOCALHOST.into();
    let names =
        Arc::new(ChangingLookup { answers: vec![harmless, local], lookups: AtomicUsize::new(0) });
    let destinations = Destinations::new("127.0.0.99").unwrap().with_lookup(names.clone());
    let client = client(destinations);
    let url = format!("http://rebound.example:{port}/");
    let refused = client.post(&url).unwrap().send().await.err().unwrap();
    assert!(matches!(refused, OutgoingError::Failed { .. }), "{refused}");
    assert_eq!(names.lookups.load(Ordering::SeqCst), 1);
    let refused = client.post(&url).unwrap().send().await.err().unwrap();
    assert!(matches!(refused, OutgoingError::Refused { .. }), "{refused}");
    assert_eq!(names.lookups.load(Ordering::SeqCst), 2);
    received.try_recv().unwrap_err();
}

#[tokio::test]
async fn names_of_this_machine_are_refused_unless_they_are_allowed() {
    let (port, mut received) = serve(ok("")).await;
    let url = format!("http://localhost:{port}/");
    let guarded = client(Destinations::default());
    let refused = guarded.post(&url).unwrap().send().await.err().unwrap();
    assert!(refused.to_string().contains("outgoing.allow"), "{refused}");
    received.try_recv().unwrap_err();
    for allow in [format!("localhost:{port}"), "127.0.0.0/8".to_owned()] {
        let allowing = client(Destinations::new(&allow).unwrap());
        let answer = allowing.post(&url).unwrap().send().await.unwrap();
        assert!(answer.is_success());
        received.recv().await.unwrap();
    }
}

#[tokio::test]
async fn a_post_follows_no_redirect() {
    let (inner, mut received) = serve(ok("inside")).await;
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:{inner}/\r\ncontent-length: 0\r\n\r\n"
    );
    let (port, _outer) = serve(redirect).await;
    let allow = format!("127.0.0.1:{port}");
    let client = client(Destinations::new(&allow).unwrap());
    let request = client.post(&format!("http://127.0.0.1:{port}/")).unwrap();
    assert_eq!(request.send().await.unwrap().status(), 307);
    received.try_recv().unwrap_err();
}

#[tokio::test]
async fn a_scrape_target_redirects_to_no_address_of_this_network() {
    let (inner, mut received) = serve(ok("inside")).await;
    for target in [
        format!("http://127.0.0.1:{inner}/"),
        format!("http://localhost:{inner}/"),
        format!("http://[::ffff:127.0.0.1]:{inner}/"),
        format!("http://2130706433:{inner}/"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
    ] {
        let redirect =
            format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
        let (port, _outer) = serve(redirect).await;
        let client = client(Destinations::default());
        let url = format!("http://127.0.0.1:{port}/metrics");
        let refused = get(&client, &url).await.err().unwrap();
        assert!(matches!(refused, OutgoingError::Refused { .. }), "{target}: {refused}");
    }
    received.try_recv().unwrap_err();
}

#[tokio::test]
async fn a_redirect_to_another_host_takes_no_credentials_with_it() {
    let (inner, mut inner_received) = serve(ok("inside")).await;
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{inner}/\r\ncontent-length: 0\r\n\r\n"
    );
    let (port, mut received) = serve(redirect).await;
    let client = client(Destinations::new("127.0.0.0/8").unwrap());
    let url = format!("http://127.0.0.1:{port}/metrics");
    let answer = get(&client, &url).await.unwrap();
    assert_eq!(answer.read_body(100).await.unwrap(), b"inside");
    assert!(received.recv().await.unwrap().contains("authorization: Basic"));
    assert!(!inner_received.recv().await.unwrap().contains("authorization"));
}

#[tokio::test]
async fn a_redirect_without_end_is_given_up() {
    let redirect = "HTTP/1.1 302 Found\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n";
    let (port, _received) = serve(redirect.to_owned()).await;
    let client = client(Destinations::default());
    let url = format!("http://127.0.0.1:{port}/");
    let error = get(&client, &url).await.err().unwrap().to_string();
    assert!(error.contains("more than 10 redirects"), "{error}");
}

#[tokio::test]
async fn an_answer_is_read_within_bounds_of_size_and_time() {
    let (port, _received) = serve(ok(&"x".repeat(1 << 20))).await;
    let client = client(Destinations::default());
    let answer = get(&client, &format!("http://127.0.0.1:{port}/")).await.unwrap();
    let error = answer.read_body(1_000).await.unwrap_err();
    assert!(matches!(error, OutgoingError::TooLong { bytes_max: 1_000 }));
    // The head comes, the body does not.
    let slow = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n1";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let holding = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        // An answer before the request would end the connection.
        let mut head = [0; 1024];
        assert!(connection.read(&mut head).await.unwrap() > 0);
        connection.write_all(slow.as_bytes()).await.unwrap();
        connection
    });
    let request = client.post_configured(&format!("http://127.0.0.1:{port}/")).unwrap();
    let request = request.timeout(Duration::from_millis(300));
    let answer = request.send().await.unwrap();
    let error = answer.read_body(1_000).await.unwrap_err();
    assert!(matches!(error, OutgoingError::Timeout), "{error}");
    drop(holding.await.unwrap());
}

#[tokio::test]
async fn errors_never_hold_the_url() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let client = client(Destinations::default());
    let url = format!("http://me:TOPSECRET@127.0.0.1:{port}/TOPSECRET?key=TOPSECRET");
    let failed = client.post_configured(&url).unwrap().send().await.err().unwrap();
    let refused = client.post(&url).err().unwrap();
    for error in [failed, refused] {
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("TOPSECRET"), "{shown}");
    }
}

/// A service of the operator's may name itself or a public address, and no other service of the
/// network.
#[tokio::test]
async fn what_a_named_service_links_to_is_itself_or_public() {
    let (port, mut requests) = serve(ok("keys")).await;
    let (other, mut others) = serve(ok("secrets")).await;
    let client = client(Destinations::default());
    let named = format!("http://127.0.0.1:{port}/discovery");
    let own = format!("http://127.0.0.1:{port}/keys");
    let answer = client.get_linked(&named, &own, |request| request).await;
    assert_eq!(answer.unwrap().read_body(100).await.unwrap(), b"keys");
    assert!(requests.recv().await.unwrap().starts_with("GET /keys "));
    for url in [
        format!("http://127.0.0.1:{other}/"),
        format!("http://localhost:{other}/"),
        "http://169.254.169.254/latest".to_owned(),
    ] {
        let refused = client.get_linked(&named, &url, |request| request).await;
        assert!(matches!(refused, Err(OutgoingError::Refused { .. })), "{url}");
    }
    assert!(others.try_recv().is_err());
}

#[test]
fn what_can_be_changed_on_the_way_is_not_confidential() {
    for (url, expected) in [
        ("https://issuer.example/", true),
        ("http://127.0.0.1:9000/", true),
        ("http://[::1]:9000/", true),
        ("http://localhost/", true),
        ("http://issuer.example/", false),
        ("http://10.0.0.1/", false),
        ("http://localhost.example/", false),
        ("http://localhost@issuer.example/", false),
    ] {
        assert_eq!(is_confidential(url).unwrap(), expected, "{url}");
    }
    assert!(is_confidential("file:///etc/passwd").is_err());
}
