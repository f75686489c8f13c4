//! Clients that are slow, silent, or many: no one else is kept out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use egret_base_test::eventually_blocking;
use rustix::process::Signal;

use crate::place::Place;

/// Types of HTTP/2 frames (RFC 9113, section 6).
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// After this a read fails, so that a fault does not hang the tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// An HTTP/2 client that sends no more than it is made to.
struct Http2(TcpStream);

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A whole GET request in one frame.
fn get(stream: u32, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    // HPACK: GET and http by index, path and authority as literals without indexing.
    let block = [&[0x82, 0x86, 0x04, length], path.as_bytes(), &[0x01, 1, b'x']].concat();
    frame(HEADERS, 0x5, stream, &block)
}

impl Http2 {
    fn connect(port: u16, window: u32) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        // SETTINGS_INITIAL_WINDOW_SIZE is 4.
        let settings = [&[0, 4], &window.to_be_bytes()[..]].concat();
        stream.write_all(&frame(SETTINGS, 0, 0, &settings)).unwrap();
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The next frame; settings and pings are answered.
    fn next(&mut self) -> Frame {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).unwrap();
            let [kind, flags] = [head[3], head[4]];
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match (kind, flags) {
                (SETTINGS, 0) => self.send(&frame(SETTINGS, 1, 0, &[])),
                (PING, 0) => self.send(&frame(PING, 1, 0, &payload)),
                _ => {
                    return Frame { kind, flags, stream, payload };
                }
            }
        }
    }
}

/// Sends a request without a token and returns the status of its answer.
fn status(place: &Place, path: &str) -> String {
    let answer = place.get(path);
    answer.split(' ').nth(1).unwrap().to_owned()
}

/// Sends a request with a token and returns the status of its answer.
fn status_with_token(place: &Place, path: &str, token: &str) -> String {
    let answer = place.get_with_token(path, token);
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn clients_that_do_not_read_keep_nobody_out() {
    let mut place = Place::new("attack-no-window");
    let timeout = ("EGRET_SERVER_TRANSFER_TIMEOUT", "2s".to_owned());
    place.variables.push(timeout);
    let server = place.start(&["serve"]);
    let token = place.admin_token();
    let mut attackers: Vec<Http2> = (0..3).map(|_| Http2::connect(place.ports[0], 0)).collect();
    for attacker in &mut attackers {
        let requests = (0..250_u32).flat_map(|number| get(2 * number + 1, "/openapi.json"));
        attacker.send(&requests.collect::<Vec<u8>>());
    }
    assert_eq!(status(&place, "/docs"), "200");
    assert_eq!(status(&place, "/readyz"), "200");
    assert_eq!(status_with_token(&place, "/v1/tokens", &token), "200");
    // Those that were begun end though nothing is read of them.
    for attacker in &mut attackers {
        let mut resets = 0;
        while resets < 16 {
            let frame = attacker.next();
            assert_ne!(frame.kind, GOAWAY, "{:?}", frame.payload);
            resets += u32::from(frame.kind == RST_STREAM);
        }
    }
    server.stop(Signal::TERM);
}

#[test]
fn public_pages_are_served_beside_connections_that_hold_all_they_may() {
    let place = Place::new("attack-public-pages");
    let server = place.start(&["serve"]);
    // Each may have 16 requests in progress, their address 64; none of them reads.
    let mut attackers: Vec<Http2> = (0..6).map(|_| Http2::connect(place.ports[0], 0)).collect();
    for attacker in &mut attackers {
        let requests = (0..250_u32).flat_map(|number| get(2 * number + 1, "/openapi.json"));
        attacker.send(&requests.collect::<Vec<u8>>());
        // What is beyond the bound of a connection is refused; the rest is held by then.
        while attacker.next().kind != HEADERS {}
    }
    for _ in 0..20 {
        assert_eq!(status(&place, "/docs"), "200");
    }
    assert_eq!(status(&place, "/readyz"), "200");
    server.stop(Signal::TERM);
}

#[test]
fn mass_cancellation_does_not_end_a_connection() {
    let place = Place::new("attack-cancellation");
    let server = place.start(&["serve"]);
    let mut client = Http2::connect(place.ports[0], 65_535);
    let mut burst = Vec::new();
    for number in 0..256_u32 {
        let stream = 2 * number + 1;
        burst.extend(get(stream, "/docs"));
        // CANCEL is 8.
        burst.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    let last = 2 * 256 + 1;
    burst.extend(get(last, "/healthz"));
    client.send(&burst);
    loop {
        let frame = client.next();
        assert_ne!(frame.kind, GOAWAY, "{:?}", frame.payload);
        if frame.kind == HEADERS && frame.stream == last {
            // 0x88 is status 200 in HPACK's table.
            assert_eq!((frame.payload[0], frame.flags & 4), (0x88, 4));
            break;
        }
    }
    server.stop(Signal::TERM);
}

/// Waits until requests with a token are answered with a status.
#[track_caller]
fn await_status(place: &Place, token: &str, expected: &str) {
    eventually_blocking(&format!("requests are answered with {expected}"), || {
        let status = status_with_token(place, "/v1/tokens", token);
        if status == expected { Ok(()) } else { Err(status) }
    });
}

#[test]
fn slow_bodies_of_one_token_keep_nobody_else_out() {
    let place = Place::new("attack-slow-bodies");
    let server = place.start(&["serve"]);
    let admin = place.admin_token();
    let made = place.json(&["token", "create", "other", "--scope", "admin"]);
    let other = made["token"].as_str().unwrap().to_owned();
    let head = format!(
        "POST /v1/tokens HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {admin}\r\n\
         content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
    );
    let slow: Vec<TcpStream> = (0..520)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", place.ports[0])).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    await_status(&place, &admin, "429");
    assert_eq!(status_with_token(&place, "/v1/tokens", &other), "200");
    assert_eq!(status(&place, "/docs"), "200");
    assert_eq!(status(&place, "/readyz"), "200");
    drop(slow);
    await_status(&place, &admin, "200");
    server.stop(Signal::TERM);
}

/// The most memory that a process has had, in bytes.
fn resident_bytes_max(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1_024
}

/// A body of gzip that becomes `size` times a comment of Influx's line protocol.
fn gzip_bomb(size: usize) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let line = [b"#".as_slice(), &[b' '; 1_022], b"\n"].concat();
    for _ in 0..size / line.len() {
        encoder.write_all(&line).unwrap();
    }
    encoder.finish().unwrap()
}

#[test]
fn many_compressed_bodies_at_once_take_bounded_memory() {
    let place = Place::new("attack-compressed");
    let server = place.start(&["serve"]);
    let admin = place.admin_token();
    let before = resident_bytes_max(server.pid());
    // Each becomes as much as one request may: 24 of them are 6 GB.
    let body = gzip_bomb(255_000_000);
    let head = format!(
        "POST /v1/series/influx HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {admin}\r\n\
         content-encoding: gzip\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let statuses: Vec<String> = std::thread::scope(|scope| {
        let send = || {
            let mut stream = TcpStream::connect(("127.0.0.1", place.ports[0])).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            // A refusal may come before the body is read, and end the connection.
            let _ = stream.write_all(&body);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            answer.split(' ').nth(1).unwrap_or("refused").to_owned()
        };
        let sending: Vec<_> = (0..24).map(|_| scope.spawn(send)).collect();
        let sent = sending.into_iter().map(|sender| sender.join().unwrap());
        sent.collect()
    });
    let expected = ["204", "429", "503", "refused"];
    assert!(statuses.iter().all(|status| expected.contains(&status.as_str())), "{statuses:?}");
    assert!(statuses.iter().any(|status| status == "204"), "{statuses:?}");
    let used = resident_bytes_max(server.pid()) - before;
    assert!(used < 1_500_000_000, "{used} bytes, {statuses:?}");
    assert_eq!(status_with_token(&place, "/v1/tokens", &admin), "200");
    server.stop(Signal::TERM);
}

/// What the proxy answers first to a startup packet.
fn first_answer(place: &Place, user: &str, database: &str) -> Vec<u8> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for text in ["user", user, "database", database, ""] {
        body.extend(text.as_bytes());
        body.push(0);
    }
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    let mut stream = TcpStream::connect(("127.0.0.1", place.ports[1])).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[&length[..], &body].concat()).unwrap();
    let mut answer = message(&mut stream);
    // SASLInitialResponse with a client's first message.
    let first = b"n,,n=,r=abcdefghijklmnop";
    let mut body = b"SCRAM-SHA-256\0".to_vec();
    body.extend(u32::try_from(first.len()).unwrap().to_be_bytes());
    body.extend(first);
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    stream.write_all(&[b"p", &length[..], &body].concat()).unwrap();
    answer.extend(without_nonce(&message(&mut stream)));
    answer
}

fn message(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut whole = head.to_vec();
    whole.resize(length + 1, 0);
    stream.read_exact(&mut whole[5..]).unwrap();
    whole
}

/// The salt and the iterations of a server's first message, behind its tag; its nonce is random.
fn without_nonce(message: &[u8]) -> Vec<u8> {
    let at = message.windows(3).position(|bytes| bytes == b",s=").unwrap();
    [&message[..1], &message[at..]].concat()
}

#[test]
fn names_of_branches_are_not_told_without_a_password() {
    let place = Place::new("attack-names");
    let server = place.start(&["serve"]);
    place.json(&["branch", "create", "one"]);
    let exists = first_answer(&place, "egret_branch", "app@one");
    for database in ["app@nope", "app@one.acme", "app@nope.acme", "app@No Name"] {
        let other = first_answer(&place, "egret_branch", database);
        let shape = |answer: &[u8]| (answer.len(), answer[0]);
        assert_eq!(shape(&other), shape(&exists), "{database}");
        assert_eq!(other.last_chunk::<6>(), exists.last_chunk::<6>());
        // Asked again, a branch that does not exist has the same salt, as one that does.
        assert_eq!(first_answer(&place, "egret_branch", database), other);
    }
    assert_eq!(first_answer(&place, "egret_branch", "app@one"), exists);
    // However the default tenant is written, and whatever database is named.
    for (one, other) in [("app@one", "other@one.default"), ("app@nope", "other@nope.default")] {
        let salt = |database| first_answer(&place, "egret_branch", database);
        assert_eq!(salt(one), salt(other));
    }
    // One salt for all roles, of a branch that exists and of one that does not.
    for (database, answer) in
        [("app@one", exists), ("app@nope", first_answer(&place, "egret_branch", "app@nope"))]
    {
        for role in ["postgres", "nobody_knows", "app"] {
            assert_eq!(first_answer(&place, role, database), answer, "{role}");
        }
    }
    let salt = |database| first_answer(&place, "postgres", database);
    assert_ne!(salt("app@one"), salt("app@nope"));
    server.stop(Signal::TERM);
}
