//! `egret document import` and `egret document export`: many documents, a line for each.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::stream::FuturesOrdered;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::reasons::{Problem, Reasons, Reference};
use super::{borrowed, queried};
use crate::api::{Api, Raw};
use crate::cli::{ImportDocuments, Place};
use crate::failure::Failure;
use crate::output::Output;

/// Lines of a request.
const LINES: usize = 1_000;

/// Bytes of a request, unless one line has more.
const BYTES: usize = 2 << 20;

/// Requests on their way at a time.
const REQUESTS: usize = 4;

/// How often is told how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(2);

pub(super) async fn export(
    collection: &str,
    meta: bool,
    place: &Place,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut query = queried(place);
    if meta {
        query.push(("meta".to_owned(), "true".to_owned()));
    }
    let path = ["collections", collection, "export"];
    let mut parts = std::pin::pin!(api.stream(&path, &borrowed(&query)).await?);
    let mut ends_a_line = true;
    while let Some(part) = parts.try_next().await? {
        ends_a_line = part.last().is_none_or(|last| *last == b'\n');
        output.part(&part)?;
    }
    match ends_a_line {
        true => Ok(()),
        false => Err(Failure::failed(
            "failed",
            "the export ended before its end: see the server's log",
        )),
    }
}

/// What became of all lines so far.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Counts {
    lines: u64,
    created: u64,
    changed: u64,
    unchanged: u64,
    refused: u64,
}

/// Where an import is in its file.
#[derive(Debug, Deserialize, Serialize)]
struct Progress {
    collection: String,
    /// Up to here all has been sent and answered, in bytes.
    offset: u64,
    counts: Counts,
    /// Up to here the file of refused lines is of those, in bytes.
    refused_bytes: u64,
}

/// Lines that are sent together.
struct Chunk {
    text: Vec<u8>,
    /// The number of its first line in the file, from 1 on.
    first: u64,
    lines: u64,
    /// Where it ends in the file, in bytes.
    end: u64,
}

#[derive(Debug, Deserialize)]
struct Answer {
    created: u64,
    changed: u64,
    unchanged: u64,
    refused: Vec<Refused>,
}

#[derive(Debug, Deserialize)]
struct Refused {
    line: u64,
    problem: Problem,
}

/// An import on its way.
struct Import<'a> {
    command: &'a ImportDocuments,
    api: &'a Api,
    output: Output,
    counts: Counts,
    reasons: Reasons,
    refused: Option<BufWriter<File>>,
    /// Lines that refer to what may come later in the file.
    again: Vec<(u64, Vec<u8>)>,
    begun: Instant,
    told: Instant,
    /// Lines of earlier times.
    before: u64,
}

pub(super) async fn import(
    command: ImportDocuments,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let progress = command.progress()?;
    let kept = progress.as_ref().map(|progress| progress.refused_bytes);
    let (offset, counts) = progress.map_or((0, Counts::default()), |progress| {
        (progress.offset, progress.counts)
    });
    if kept.is_some() {
        output.remark(&format!("going on after line {}", counts.lines));
    }
    let refused = match &command.refused {
        Some(path) => Some(BufWriter::new(open(path, kept)?)),
        None => None,
    };
    let lines = Lines::open(&command.file, offset, counts.lines)?;
    let mut import = Import {
        command: &command,
        api,
        output,
        before: counts.lines,
        counts,
        reasons: Reasons::default(),
        refused,
        again: Vec::new(),
        begun: Instant::now(),
        told: Instant::now(),
    };
    import.run(lines).await?;
    import.again().await?;
    import.finish()
}

impl ImportDocuments {
    fn state(&self) -> Option<PathBuf> {
        let is_file = self.file.as_os_str() != "-";
        is_file.then(|| {
            let mut name = self.file.clone().into_os_string();
            name.push(".progress");
            PathBuf::from(name)
        })
    }

    /// Where an earlier import of the file was broken off.
    fn progress(&self) -> Result<Option<Progress>, Failure> {
        let Some(path) = self.state().filter(|path| !self.anew && path.exists()) else {
            return Ok(None);
        };
        let text = std::fs::read(&path).map_err(|error| unusable(&path, &error))?;
        let progress: Progress = serde_json::from_slice(&text).map_err(|_| {
            Failure::usage(format!(
                "{}: this is not where an import was",
                path.display()
            ))
            .with_hint("--anew begins at the first line")
        })?;
        match progress.collection == self.collection {
            true => Ok(Some(progress)),
            false => Err(Failure::usage(format!(
                "{}: an import of collection {} was broken off",
                path.display(),
                progress.collection
            ))
            .with_hint("--anew begins at the first line")),
        }
    }
}

/// The file of refused lines: what of it is kept, in bytes.
fn open(path: &Path, kept: Option<u64>) -> Result<File, Failure> {
    let opened = || {
        let file = File::options().append(true).create(true).open(path)?;
        file.set_len(kept.unwrap_or(0))?;
        Ok(file)
    };
    opened().map_err(|error| unusable(path, &error))
}

pub(super) fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}

/// The lines of a file, some at a time.
struct Lines<'a> {
    path: &'a Path,
    reader: Box<dyn BufRead + Send>,
    offset: u64,
    line: u64,
}

impl<'a> Lines<'a> {
    fn open(path: &'a Path, offset: u64, line: u64) -> Result<Self, Failure> {
        let reader: Box<dyn BufRead + Send> = match path.as_os_str() == "-" {
            true => Box::new(BufReader::new(io::stdin())),
            false => {
                let mut file = File::open(path).map_err(|error| unusable(path, &error))?;
                io::Seek::seek(&mut file, io::SeekFrom::Start(offset))
                    .map_err(|error| unusable(path, &error))?;
                Box::new(BufReader::with_capacity(1 << 20, file))
            }
        };
        Ok(Self {
            path,
            reader,
            offset,
            line,
        })
    }

    fn next(&mut self) -> Result<Option<Chunk>, Failure> {
        let mut chunk = Chunk {
            text: Vec::new(),
            first: self.line + 1,
            lines: 0,
            end: 0,
        };
        while (chunk.lines as usize) < LINES && chunk.text.len() < BYTES {
            let read = self.reader.read_until(b'\n', &mut chunk.text);
            match read.map_err(|error| unusable(self.path, &error))? {
                0 => break,
                bytes => self.offset += bytes as u64,
            }
            chunk.lines += 1;
        }
        self.line += chunk.lines;
        chunk.end = self.offset;
        Ok(Some(chunk).filter(|chunk| chunk.lines > 0))
    }
}

impl Import<'_> {
    async fn run(&mut self, mut lines: Lines<'_>) -> Result<(), Failure> {
        let (api, command) = (self.api, self.command);
        let mut sent = FuturesOrdered::new();
        let mut has_more = true;
        loop {
            while has_more && sent.len() < REQUESTS {
                match lines.next()? {
                    Some(chunk) => sent.push_back(send(api, command, chunk)),
                    None => has_more = false,
                }
            }
            let Some(answered) = sent.next().await else {
                return Ok(());
            };
            let (chunk, answer) = answered?;
            self.counts.lines += chunk.lines;
            self.count(&answer);
            let texts: Vec<&[u8]> = chunk.text.split(|byte| *byte == b'\n').collect();
            for refused in answer.refused {
                let text = texts.get(refused.line as usize - 1).copied().unwrap_or(&[]);
                let line = chunk.first + refused.line - 1;
                let own = |one: &Reference| one.to == command.collection;
                // What it refers to may have come after it.
                if refused.problem.references.iter().any(own) {
                    self.again.push((line, text.to_vec()));
                } else {
                    self.refuse(line, text, &refused.problem)?;
                }
            }
            self.tell(chunk.end)?;
        }
    }

    fn count(&mut self, answer: &Answer) {
        self.counts.created += answer.created;
        self.counts.changed += answer.changed;
        self.counts.unchanged += answer.unchanged;
    }

    fn refuse(&mut self, line: u64, text: &[u8], problem: &Problem) -> Result<(), Failure> {
        self.counts.refused += 1;
        self.reasons.add(problem);
        let (Some(file), Some(path)) = (&mut self.refused, &self.command.refused) else {
            return Ok(());
        };
        let mut told = json!(problem);
        told["line"] = line.into();
        told["document"] = serde_json::from_slice(text)
            .unwrap_or_else(|_| String::from_utf8_lossy(text).into_owned().into());
        writeln!(file, "{told}").map_err(|error| unusable(path, &error))
    }

    /// Says how far it is, and notes it.
    fn tell(&mut self, offset: u64) -> Result<(), Failure> {
        if self.told.elapsed() < TOLD_EVERY {
            return Ok(());
        }
        self.told = Instant::now();
        let rate = (self.counts.lines - self.before) as f64 / self.begun.elapsed().as_secs_f64();
        self.output.remark(&format!(
            "{} lines, {} refused, {rate:.0} a second",
            self.counts.lines, self.counts.refused
        ));
        // What waits for a second time is not done: it would be lost with the process.
        let Some(path) = self.command.state().filter(|_| self.again.is_empty()) else {
            return Ok(());
        };
        let mut refused_bytes = 0;
        if let (Some(file), Some(path)) = (&mut self.refused, &self.command.refused) {
            let flushed = file.flush().and_then(|()| file.get_ref().metadata());
            refused_bytes = flushed.map_err(|error| unusable(path, &error))?.len();
        }
        let progress = Progress {
            collection: self.command.collection.clone(),
            offset,
            counts: self.counts.clone(),
            refused_bytes,
        };
        let text = serde_json::to_vec(&progress).expect("it is text and numbers");
        std::fs::write(&path, text).map_err(|error| unusable(&path, &error))
    }

    /// Sends lines again that were refused because of others that may have come meanwhile, as long as that helps.
    async fn again(&mut self) -> Result<(), Failure> {
        loop {
            let left = std::mem::take(&mut self.again);
            let mut refused = Vec::new();
            for lines in left.chunks(LINES) {
                let texts: Vec<&[u8]> = lines.iter().map(|(_, text)| text.as_slice()).collect();
                let chunk = Chunk {
                    text: texts.join(&b'\n'),
                    first: 1,
                    lines: lines.len() as u64,
                    end: 0,
                };
                let (_, answer) = send(self.api, self.command, chunk).await?;
                self.count(&answer);
                for one in answer.refused {
                    let (line, text) = lines[one.line as usize - 1].clone();
                    refused.push((line, text, one.problem));
                }
            }
            if refused.len() == left.len() {
                for (line, text, problem) in refused {
                    self.refuse(line, &text, &problem)?;
                }
                return Ok(());
            }
            self.again = refused
                .into_iter()
                .map(|(line, text, _)| (line, text))
                .collect();
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        if let (Some(mut file), Some(path)) = (self.refused.take(), &self.command.refused) {
            file.flush().map_err(|error| unusable(path, &error))?;
        }
        if let Some(directory) = &self.command.missing {
            self.reasons.write(directory)?;
        }
        if let Some(path) = self.command.state() {
            // Most imports leave none.
            let _ = std::fs::remove_file(path);
        }
        let counts = &self.counts;
        let answer = serde_json::to_value(counts).expect("they are numbers");
        let seconds = self.begun.elapsed().as_secs_f64();
        self.output.answer(&answer, |counts: Counts| {
            format!(
                "{} lines in {seconds:.1} s: {} documents are new, {} changed, {} were so already, {} lines were refused",
                counts.lines, counts.created, counts.changed, counts.unchanged, counts.refused
            )
        })?;
        for line in self.reasons.lines() {
            self.output.remark(&line);
        }
        match counts.refused {
            0 => Ok(()),
            refused => Err(Failure::failed(
                "lines_refused",
                format!("{refused} lines were refused"),
            )
            .with_hint(match &self.command.refused {
                Some(path) => format!("{} says which, and why", path.display()),
                None => "--refused FILE writes which, and why".to_owned(),
            })),
        }
    }
}

async fn send(
    api: &Api,
    command: &ImportDocuments,
    mut chunk: Chunk,
) -> Result<(Chunk, Answer), Failure> {
    let path = ["collections", &command.collection, "import"].map(str::to_owned);
    let mut query = queried(&command.place);
    if command.relaxed {
        query.push(("durability".to_owned(), "relaxed".to_owned()));
    }
    let text = std::mem::take(&mut chunk.text);
    let raw = Raw {
        query,
        body: Some(("application/x-ndjson", text.clone())),
        ..Raw::new(Method::POST, path.into())
    };
    let answer = api.raw(raw).await?;
    chunk.text = text;
    let answer = serde_json::from_slice(&answer.body).map_err(|error| {
        Failure::failed(
            "failed",
            format!("the answer is not what was expected: {error}"),
        )
    })?;
    Ok((chunk, answer))
}
