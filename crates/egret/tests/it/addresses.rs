//! Which certificates of a server the command line trusts, and what it says of an address where
//! something else answers.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustix::process::Signal;

use crate::place::{Place, text};

/// Writes a self-signed certificate of an authority and its key, as `openssl req -x509` makes them;
/// returns their paths.
fn write_self_signed(place: &Place, name: &str) -> [String; 2] {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let texts = [("crt", certificate.pem()), ("key", key.serialize_pem())];
    texts.map(|(kind, text)| {
        let path = place.directory.join(format!("{name}.{kind}"));
        fs::write(&path, text).unwrap();
        path.display().to_string()
    })
}

#[test]
fn a_self_signed_certificate_is_trusted_where_ca_file_holds_it() {
    let mut place = Place::new("own-ca");
    let [certificate, key] = write_self_signed(&place, "own");
    let [other, _] = write_self_signed(&place, "other");
    place.variables =
        vec![("EGRET_SERVER_TLS_CERTIFICATE", certificate.clone()), ("EGRET_SERVER_TLS_KEY", key)];
    let server = place.start(&["serve"]);
    let list = |flags: &[&str]| {
        let ran = place.run(&[&["token", "list"], flags].concat());
        (ran.status.code(), text(&ran.stderr))
    };
    let port = place.ports[0];
    let address = format!("https://127.0.0.1:{port}");
    let (code, message) = list(&["--url", &address, "--ca-file", &certificate]);
    assert_eq!(code, Some(0), "{message}");
    let renamed = format!("https://localhost:{port}");
    for (url, trusted, advice) in [
        (&address, &other, "name this certificate by --ca-file"),
        (&renamed, &certificate, "for another host"),
    ] {
        let (code, message) = list(&["--url", url, "--ca-file", trusted]);
        assert_eq!(code, Some(3), "{message}");
        assert!(message.contains(advice), "{message}");
    }
    // The door speaks TLS only.
    let (code, message) = list(&["--url", &format!("http://127.0.0.1:{port}")]);
    assert_eq!(code, Some(3), "{message}");
    assert!(message.contains("try https://"), "{message}");
    server.stop(Signal::TERM);
}

/// Answers the first connection with this, and closes it; returns the port.
fn answer_once(answer: &'static str) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let _ = connection.read(&mut [0; 16 << 10]);
        let _ = connection.write_all(answer.as_bytes());
    });
    (port, serving)
}

#[test]
fn an_address_that_speaks_no_tls_is_told_from_a_server_that_does_not_run() {
    let place = Place::new("no-tls");
    for answer in ["HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n", ""] {
        let (port, serving) = answer_once(answer);
        let url = format!("https://127.0.0.1:{port}");
        let ran = place.run(&["token", "list", "--url", &url]);
        let message = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(3), "{message}");
        assert!(message.contains("try http://"), "{message}");
        serving.join().unwrap();
    }
}

/// A server that is killed while it refuses something is no other program.
#[test]
fn a_refusal_that_is_cut_off_is_told_from_another_program() {
    let place = Place::new("cut-off");
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 20\r\n\r\n";
    for (answer, expected) in [
        (format!("{head}{{\"code\":"), "was truncated"),
        (format!("{head}<html>no Egret</html"), "is not Egret"),
    ] {
        let (port, serving) = answer_once(answer.leak());
        let url = format!("http://127.0.0.1:{port}");
        let ran = place.run(&["token", "list", "--url", &url]);
        let message = text(&ran.stderr);
        assert!(message.contains(expected), "{message}");
        serving.join().unwrap();
    }
}
