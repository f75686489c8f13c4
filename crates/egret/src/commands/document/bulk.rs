//! `egret document import` and `egret document export`: many documents, a line for each.

mod lines;
mod progress;
mod sending;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesOrdered;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::json;

use self::lines::{Chunk, LINES, Lines};
use self::progress::{Counts, Earlier, Left, Mark, Noted, Progress, Refusals, Source};
use self::sending::{Answer, Sender};
use super::reasons::{Problem, Reasons, Reference};
use super::{borrowed, queried};
use crate::api::Api;
use crate::cli::{ImportDocuments, Place};
use crate::failure::Failure;
use crate::output::Output;

/// Requests on their way at a time.
const REQUESTS: usize = 4;

/// How often is told and noted how far it is. With --relaxed it is noted the time after, when PostgreSQL has written it to the disk.
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

/// An import on its way.
struct Import<'a> {
    command: &'a ImportDocuments,
    sender: &'a Sender<'a>,
    output: Output,
    counts: Counts,
    reasons: Reasons,
    refused: Option<BufWriter<File>>,
    /// Of what cannot be gone on with, nothing is noted.
    progress: Option<Progress>,
    /// Up to here each line of the file is answered for good, in bytes.
    offset: u64,
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
    command.check_files()?;
    let mut progress = command.progress(api)?;
    let Left { mark, reasons, .. } = command.left(progress.as_mut(), output)?;
    let refused = match &command.refused {
        Some(path) => {
            let kept = command.refusals_of(&mark).unwrap_or(0);
            Some(BufWriter::new(open(path, kept)?))
        }
        None => None,
    };
    let lines = Lines::open(&command.file, mark.offset, mark.counts.lines)?;
    let sender = Sender::new(api, &command, output);
    let mut import = Import {
        command: &command,
        sender: &sender,
        output,
        before: mark.counts.lines,
        counts: mark.counts,
        reasons,
        refused,
        progress,
        offset: mark.offset,
        again: Vec::new(),
        begun: Instant::now(),
        told: Instant::now(),
    };
    import.run(lines).await?;
    import.again().await?;
    import.finish()
}

impl ImportDocuments {
    /// Nothing is written over what is read.
    fn check_files(&self) -> Result<(), Failure> {
        let Ok(file) = std::fs::canonicalize(&self.file) else {
            return Ok(());
        };
        let is = |other: &Path, this: &Path| {
            std::fs::canonicalize(other).is_ok_and(|other| other == this)
        };
        let name = self.file.display();
        if self.refused.as_ref().is_some_and(|path| is(path, &file)) {
            let what = format!("--refused is {name} itself: its lines would be lost");
            return Err(Failure::usage(what));
        }
        let directory = file.parent().unwrap_or(&file);
        if self
            .missing
            .as_ref()
            .is_some_and(|path| is(path, directory))
        {
            let what = format!(
                "--missing is the directory of {name}: documents there would be written over"
            );
            return Err(Failure::usage(what)
                .with_hint("name another one, which is made if it is not there"));
        }
        Ok(())
    }

    /// Where it is noted how far it is: of a file that can be read from anywhere.
    fn progress(&self, api: &Api) -> Result<Option<Progress>, Failure> {
        if self.file.as_os_str() == "-" {
            return Ok(None);
        }
        let found = std::fs::metadata(&self.file);
        let found = found.map_err(|error| unusable(&self.file, &error))?;
        let mut path = self.file.clone().into_os_string();
        path.push(".progress");
        let source = Source::new(&api.base(), self, &found);
        let noted = match self.relaxed {
            true => Noted::Later,
            false => Noted::AtOnce,
        };
        let progress = Progress::new(path.into(), source, noted);
        Ok(Some(progress).filter(|_| found.is_file()))
    }

    /// What an earlier import of the same has done before it was broken off. What cannot be gone on with is begun anew: lines that come again
    /// change nothing.
    fn left(&self, progress: Option<&mut Progress>, output: Output) -> Result<Left, Failure> {
        let Some(progress) = progress else {
            return Ok(Left::default());
        };
        if self.anew {
            progress.forget();
            return Ok(Left::default());
        }
        let file = self.file.display();
        let why = match progress.earlier()? {
            Earlier::Nothing => return Ok(Left::default()),
            Earlier::This(left) if self.refusals_of(&left.mark).is_some() => {
                progress.go_on(&left)?;
                let lines = left.mark.counts.lines;
                output.remark(&format!("{file}: going on after line {lines}"));
                return Ok(left);
            }
            Earlier::This(_) => {
                progress.forget();
                "lines that were refused before are not in --refused".to_owned()
            }
            // Until something is noted here, the other one can still go on.
            Earlier::Another(what) => what,
        };
        output.remark(&format!("{file}: {why}: beginning at the first line"));
        Ok(Left::default())
    }

    /// How much of the file of refused lines is of an earlier import, in bytes; none: not all that it has refused is there.
    fn refusals_of(&self, mark: &Mark) -> Option<u64> {
        let Some(path) = self.refused.as_ref().filter(|_| mark.counts.refused > 0) else {
            return Some(0);
        };
        let refusals = mark.refusals.as_ref()?;
        let is_same = refusals.path == told_path(path);
        let is_whole = std::fs::metadata(path).is_ok_and(|found| found.len() >= refusals.bytes);
        (is_same && is_whole).then_some(refusals.bytes)
    }
}

/// A path that means the same file wherever the command is given.
fn told_path(path: &Path) -> String {
    let whole = std::path::absolute(path);
    let whole = whole.unwrap_or_else(|_| path.to_owned());
    whole.to_string_lossy().into_owned()
}

/// The file of refused lines, with so many bytes of what it has.
fn open(path: &Path, kept: u64) -> Result<File, Failure> {
    let opened = || {
        let file = File::options().append(true).create(true).open(path)?;
        file.set_len(kept)?;
        Ok(file)
    };
    opened().map_err(|error| unusable(path, &error))
}

pub(super) fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}

impl Import<'_> {
    async fn run(&mut self, mut lines: Lines<'_>) -> Result<(), Failure> {
        let sender = self.sender;
        let mut sent = FuturesOrdered::new();
        let mut has_more = true;
        loop {
            while has_more && sent.len() < REQUESTS {
                match lines.next().map_err(|failure| self.break_off(failure))? {
                    Some(chunk) => sent.push_back(async move {
                        let answer = sender.deliver(&chunk.text).await?;
                        Ok::<_, Failure>((chunk, answer))
                    }),
                    None => has_more = false,
                }
            }
            let Some(answered) = sent.next().await else {
                return Ok(());
            };
            let (chunk, answer) = answered.map_err(|failure| self.break_off(failure))?;
            self.take(&chunk, answer)?;
            self.tell()?;
        }
    }

    /// What became of lines, for good.
    fn take(&mut self, chunk: &Chunk, answer: Answer) -> Result<(), Failure> {
        self.count(&answer);
        let texts: Vec<&[u8]> = chunk.text.split(|byte| *byte == b'\n').collect();
        for (place, problem) in answer.refused {
            let (line, text) = (chunk.first + place as u64, texts[place]);
            let own = |one: &Reference| one.to == self.command.collection;
            // What it refers to may have come after it.
            if problem.references.iter().any(own) {
                self.again.push((line, text.to_vec()));
            } else {
                self.refuse(line, text, &problem)?;
            }
        }
        self.counts.lines += chunk.lines;
        self.offset = chunk.end;
        Ok(())
    }

    fn count(&mut self, answer: &Answer) {
        self.counts.created += answer.created;
        self.counts.changed += answer.changed;
        self.counts.unchanged += answer.unchanged;
    }

    fn refuse(&mut self, line: u64, text: &[u8], problem: &Problem) -> Result<(), Failure> {
        self.counts.refused += 1;
        self.reasons.add(problem);
        if self.again.is_empty()
            && let Some(progress) = &mut self.progress
        {
            progress.refuse(problem);
        }
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
    fn tell(&mut self) -> Result<(), Failure> {
        if self.told.elapsed() < TOLD_EVERY {
            return Ok(());
        }
        self.told = Instant::now();
        let rate = (self.counts.lines - self.before) as f64 / self.begun.elapsed().as_secs_f64();
        self.output.remark(&format!(
            "{} lines, {} refused, {rate:.0} a second",
            self.counts.lines, self.counts.refused
        ));
        self.note().map(drop)
    }

    /// Notes how far it is; tells whether it has.
    fn note(&mut self) -> Result<bool, Failure> {
        if self.is_doubtful() {
            // What was noted before the server was away holds still, and what comes now does not.
            self.progress = None;
        }
        // What waits for a second time is not done: it would be lost with the process.
        if !self.again.is_empty() {
            return Ok(false);
        }
        let Some(progress) = &mut self.progress else {
            return Ok(false);
        };
        let mut refusals = None;
        if let (Some(file), Some(path)) = (&mut self.refused, &self.command.refused) {
            let flushed = file.flush().and_then(|()| file.get_ref().metadata());
            refusals = Some(Refusals {
                path: told_path(path),
                bytes: flushed.map_err(|error| unusable(path, &error))?.len(),
            });
        }
        let noted = progress.note(&Mark {
            offset: self.offset,
            counts: self.counts.clone(),
            refusals,
        });
        if let Err(failure) = noted {
            // The import goes on all the same, and begins at the first line if it is broken off.
            self.progress = None;
            let message = failure.message;
            self.output
                .remark(&format!("how far it is cannot be noted: {message}"));
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether lines may be lost that were answered: the disk was not waited for, and the server was away.
    fn is_doubtful(&self) -> bool {
        self.command.relaxed && self.sender.was_away()
    }

    /// Notes how far it came before it failed.
    fn break_off(&mut self, failure: Failure) -> Failure {
        // What was sent with --relaxed is noted a while after it was answered.
        if self.counts.lines == 0 || self.command.relaxed {
            return failure;
        }
        let lines = self.counts.lines;
        match self.note() {
            Ok(true) => self.output.remark(&format!(
                "{lines} lines are done: the same command goes on after them"
            )),
            Ok(false) => {}
            Err(second) => self.output.remark(&second.message),
        }
        failure
    }

    /// Sends lines again that were refused because of others that may have come meanwhile, as long as that helps.
    async fn again(&mut self) -> Result<(), Failure> {
        loop {
            let left = std::mem::take(&mut self.again);
            let mut refused = Vec::new();
            for lines in left.chunks(LINES) {
                let texts: Vec<&[u8]> = lines.iter().map(|(_, text)| text.as_slice()).collect();
                let answer = self.sender.deliver(&texts.join(&b'\n')).await?;
                self.count(&answer);
                for (place, problem) in answer.refused {
                    let (line, text) = lines[place].clone();
                    refused.push((line, text, problem));
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
        let is_doubtful = self.is_doubtful();
        if let Some(progress) = self.progress.take().filter(|_| !is_doubtful) {
            progress.forget();
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
        if is_doubtful {
            return Err(Failure::failed(
                "import_doubtful",
                "the server was away for a time, and may have lost lines that were sent with --relaxed before",
            )
            .with_hint("give the same command again: lines that are there change nothing"));
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
