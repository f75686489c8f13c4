//! Samples through `kill -9`: what was acknowledged is there afterwards, once, whatever was under
//! way. `EGRET_CRASHES` sets how often the server is killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};

use egret_metrics_wire::encode::{SeriesToWrite, append_series_v1};
use egret_metrics_wire::{WireSample, snappy};

use crate::place::{Place, crashes};
use crate::series::{series, start};

/// Number of kills of the server, unless `EGRET_CRASHES` says otherwise.
const CRASHES: u64 = 4;

const SENDERS: u64 = 4;

const SERIES: u64 = 20;

/// Between two samples of a series.
const STEP_MS: i64 = 5;

/// One after the other, as long as there is a server: the number of a request is the value of all
/// its samples.
struct Writer {
    number: u64,
    begin_ms: i64,
    /// The last request that was acknowledged.
    acknowledged: u64,
}

impl Writer {
    fn body(&self, request: u64) -> Vec<u8> {
        let (sender, time_ms) = (self.number.to_string(), self.begin_ms + request as i64 * STEP_MS);
        let mut body = Vec::new();
        for number in 0..SERIES {
            let number = number.to_string();
            let value = request as f64;
            let one = SeriesToWrite {
                labels: vec![("__name__", "kept"), ("n", &number), ("sender", &sender)],
                samples: vec![WireSample { time_ms, value }],
                ..SeriesToWrite::default()
            };
            append_series_v1(&one, &mut body);
        }
        snappy::encode(&body)
    }

    /// Writes until there is no answer, and sends a message for each acknowledgement.
    fn write(&mut self, port: u16, token: &str, told: &Sender<()>) {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
            return;
        };
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        loop {
            let body = self.body(self.acknowledged + 1);
            let head = format!(
                "POST /prometheus/api/v1/write HTTP/1.1\r\nhost: egret\r\nauthorization: Bearer {token}\r\n\
                 content-encoding: snappy\r\ncontent-type: application/x-protobuf\r\n\
                 x-prometheus-remote-write-version: 0.1.0\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let sent = stream.write_all(&[head.as_bytes(), &body].concat());
            match sent.ok().and_then(|()| status(&mut answers)) {
                Some(204) => self.acknowledged += 1,
                Some(other) => panic!("a write was answered with {other}"),
                None => return,
            }
            // The receiver may have ended after enough acknowledgements.
            let _ = told.send(());
        }
    }
}

/// The status of an answer; nothing when it does not come whole.
fn status(answers: &mut impl BufRead) -> Option<u16> {
    let (mut status, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if answers.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        match status {
            None => status = line.split(' ').nth(1)?.parse().ok(),
            Some(_) => {
                let line = line.to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().ok()?;
                }
            }
        }
    }
    let mut body = vec![0; length];
    answers.read_exact(&mut body).ok()?;
    status
}

/// By sender and number the value of a query.
fn ask(place: &Place, query: &str) -> BTreeMap<(u64, u64), u64> {
    let answer = series(place, &["query", query]);
    let result = answer["data"]["result"].as_array().unwrap();
    let each = result.iter().map(|one| {
        let label = |name: &str| one["metric"][name].as_str().unwrap().parse().unwrap();
        let value: f64 = one["value"][1].as_str().unwrap().parse().unwrap();
        ((label("sender"), label("n")), value as u64)
    });
    each.collect()
}

/// Every series has all values from 1 to the last that was acknowledged, or to the one after it,
/// and each once.
fn check(place: &Place, writers: &[Writer]) {
    let counts = ask(place, "count_over_time(kept[6h])");
    let sums = ask(place, "sum_over_time(kept[6h])");
    for writer in writers.iter().filter(|writer| writer.acknowledged > 0) {
        for number in 0..SERIES {
            let key = (writer.number, number);
            let (count, sum) = (counts[&key], sums[&key]);
            let last = writer.acknowledged;
            assert!(
                (last..=last + 1).contains(&count),
                "{key:?}: {last} were acknowledged, {count} are there"
            );
            assert_eq!(sum, count * (count + 1) / 2, "{key:?} has {count} values");
        }
    }
}

#[test]
fn what_was_acknowledged_survives_kills_under_load_once() {
    let crashes = crashes(CRASHES);
    let mut place = Place::new("series-crash");
    // Blocks are written, and merged, all the time.
    place.variables = vec![
        ("EGRET_SERIES_LOG_SIZE", "64KiB".to_owned()),
        ("EGRET_SERIES_HEAD_SIZE", "64KiB".to_owned()),
    ];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut writers: Vec<Writer> = (0..SENDERS)
        .map(|number| Writer {
            number,
            begin_ms: now.as_millis() as i64 - 3_600_000,
            acknowledged: 0,
        })
        .collect();
    for crash in 0..crashes {
        let (server, token) = start(&place);
        check_all(&place, &writers);
        let (tell, told) = channel();
        let port = place.ports[0];
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let (tell, token) = (tell.clone(), &token);
                scope.spawn(move || writer.write(port, token, &tell));
            }
            let enough = 400 + 317 * crash as usize % 1_500;
            told.iter().take(enough).for_each(drop);
            server.kill();
        });
    }
    let (server, _) = start(&place);
    check_all(&place, &writers);
    server.kill();
}

fn check_all(place: &Place, writers: &[Writer]) {
    if writers.iter().any(|writer| writer.acknowledged > 0) {
        check(place, writers);
    }
}
