//! Samples from files and into files, of any size: neither side has one in memory.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::pin::pin;

use anyhow::Context;
use bytes::Bytes;
use clap::ValueEnum;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use crate::api::Api;
use crate::cli::{self, ImportFormat};
use crate::failure::Failure;
use crate::output::{Output, decode, format_bytes, printable};

/// So much of a file is read together.
const CHUNK_BYTES: usize = 256 << 10;

/// Chunks that may wait for the server.
const CHUNKS_WAITING: usize = 4;

#[derive(Deserialize)]
struct ImportResult {
    samples: u64,
    late: u64,
    rejected: u64,
    reasons: Vec<String>,
}

pub(super) async fn import(
    path: &Path,
    format: Option<ImportFormat>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let (format, is_gzip) = detect_format(path, format)?;
    let format = format.to_possible_value().expect("no format is hidden");
    let file: Box<dyn Read + Send> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).with_context(|| path.display().to_string())?)
    };
    let mut chunk_receiver = read_chunks(file);
    let body = stream::poll_fn(move |context| chunk_receiver.poll_recv(context));
    let query = [("format", format.get_name())];
    let uploading = api.upload(&["series", "import"], &query, is_gzip, body);
    let answer = output.wait_with_spinner("importing", uploading).await?;
    let rejected = decode::<ImportResult>(&answer)?.rejected;
    output.print_answer(&answer, |imported: ImportResult| {
        let mut text = format!("{} samples were written", imported.samples);
        if imported.late > 0 {
            text.push_str(&format!(", {} of them late", imported.late));
        }
        for reason in imported.reasons {
            text.push_str(&format!("\n  {}", printable(&reason)));
        }
        text
    })?;
    match rejected {
        0 => Ok(()),
        refused => Err(Failure::failed(
            "samples_refused",
            format!("{refused} samples or lines were refused"),
        )),
    }
}

/// Format of a file, by its name unless one is given, and whether the file is compressed.
fn detect_format(
    path: &Path,
    format: Option<ImportFormat>,
) -> Result<(ImportFormat, bool), Failure> {
    let extension = |path: &Path| {
        let ending = path.extension().unwrap_or_default();
        ending.to_string_lossy().to_ascii_lowercase()
    };
    let is_gzip = extension(path) == "gz";
    let plain = if is_gzip { path.with_extension("") } else { path.to_owned() };
    let by_name = match extension(&plain).as_str() {
        "jsonl" | "ndjson" => Some(ImportFormat::Jsonl),
        "csv" => Some(ImportFormat::Csv),
        "prom" | "txt" => Some(ImportFormat::Prometheus),
        "om" => Some(ImportFormat::Openmetrics),
        "" if path == Path::new("-") => Some(ImportFormat::Jsonl),
        _ => None,
    };
    let format = format.or(by_name).ok_or_else(|| {
        Failure::usage(format!(
            "cannot derive the format from the file name {}: give --format",
            path.display()
        ))
    })?;
    Ok((format, is_gzip))
}

/// The bytes of a file, read by a thread of its own while they are sent.
fn read_chunks(mut file: Box<dyn Read + Send>) -> mpsc::Receiver<std::io::Result<Bytes>> {
    let (sender, chunks) = mpsc::channel(CHUNKS_WAITING);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let read = file.read(&mut chunk);
            let next = match read {
                Ok(0) => return,
                Ok(length) => {
                    chunk.truncate(length);
                    Ok(Bytes::from(chunk))
                }
                Err(error) => Err(error),
            };
            let is_last = next.is_err();
            // The receiver is gone when the server has refused the rest.
            if sender.blocking_send(next).is_err() || is_last {
                return;
            }
        }
    });
    chunks
}

pub(super) async fn export(export: &cli::Export, api: &Api, output: Output) -> Result<(), Failure> {
    let format = export.format.to_possible_value().expect("no format is hidden");
    let mut query = vec![("format", format.get_name())];
    query.extend(export.selectors.iter().map(|selector| ("match[]", selector.as_str())));
    query.extend(export.start.iter().map(|start| ("start", start.as_str())));
    query.extend(export.end.iter().map(|end| ("end", end.as_str())));
    let mut chunks = pin!(api.stream(&["series", "export"], &query).await?);
    let Some(path) = &export.out else {
        while let Some(chunk) = chunks.next().await {
            output.write_chunk(&chunk?)?;
        }
        return Ok(());
    };
    let mut file = File::create(path).with_context(|| path.display().to_string())?;
    let mut size = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        size += chunk.len() as u64;
        file.write_all(&chunk).with_context(|| path.display().to_string())?;
    }
    file.sync_all().with_context(|| path.display().to_string())?;
    if output.is_json() {
        output.print_json(&json!({"file": path, "bytes": size}))
    } else {
        output.print_text(&format!("{} were written to {}", format_bytes(size), path.display()))
    }
}
