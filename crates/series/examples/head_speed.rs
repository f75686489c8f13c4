//! What reading samples of a head costs, by the length of the span that is read, and how much
//! memory a sample takes: gauges and counters, 15 s apart. `cargo run --release -p egret-series
//! --example head_speed`.

use std::time::Instant;

use egret_series::core::chunk::{Appender, Chunk};

const SAMPLES: i64 = 4_000;
const ROUNDS: usize = 2_000;

fn value(kind: &str, at: i64) -> f64 {
    let noise = (at * 7919 % 1009) as f64;
    match kind {
        "counter" => (at * 15) as f64 + (noise / 10.0).floor(),
        "bytes" => 4096.0 * (250_000.0 + noise),
        "ratio" => (noise / 1009.0).sqrt(),
        _ => 1.0,
    }
}

fn main() {
    for kind in ["constant", "counter", "bytes", "ratio"] {
        let mut appender = Appender::new(0, value(kind, 0));
        let mut chunks: Vec<Chunk> = Vec::new();
        for at in 1..SAMPLES {
            let (time_ms, value) = (at * 15_000, value(kind, at));
            if appender.push(time_ms, value).is_err() {
                chunks.push(appender.begin_next(time_ms, value));
            }
        }
        chunks.push(appender.chunk().clone());
        let bytes: usize = chunks.iter().map(Chunk::size_bytes).sum();
        let began = Instant::now();
        let mut sum = 0.0;
        for _ in 0..ROUNDS {
            for chunk in &chunks {
                for (time_ms, value) in chunk.samples() {
                    sum += value + time_ms as f64;
                }
            }
        }
        let took = began.elapsed().as_secs_f64() / (ROUNDS * SAMPLES as usize) as f64;
        println!(
            "{kind:9} {:.2} bytes and {:.2} ns a sample ({sum:e})",
            bytes as f64 / SAMPLES as f64,
            took * 1e9,
        );
    }
}
