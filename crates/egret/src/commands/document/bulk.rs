//! `egret document import` and `egret document export`: many documents, a line for each.

mod lines;
mod progress;
mod sending;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesOrdered;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::json;

use self::lines::{LINES, LineChunk, Lines};
use self::progress::{
    Checkpoint, FlushMode, ImportIdentity, LineCounts, PriorProgress, ProgressFile, Refusals,
    ResumeState,
};
use self::sending::{ChunkSender, ImportTotals};
use super::reasons::{DocumentProblem, Reasons, UnresolvedReference};
use super::request::{borrowed, queried, unusable};
use crate::api::Api;
use crate::cli::{DatabaseArgs, ImportDocuments};
use crate::failure::Failure;
use crate::output::Output;

/// Requests that are in flight at a time.
const REQUESTS: usize = 4;

/// Interval between two reports of progress, and two checkpoints. With --relaxed a checkpoint is
/// written one interval later, when PostgreSQL has flushed the lines.
const TOLD_EVERY: Duration = Duration::from_secs(2);

pub(super) async fn export(
    collection: &str,
    meta: bool,
    place: &DatabaseArgs,
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
    if ends_a_line {
        Ok(())
    } else {
        Err(Failure::failed(
            "failed",
            "the export is incomplete: see the server's log",
        ))
    }
}

/// An import that is being run.
struct Import<'a> {
    command: &'a ImportDocuments,
    sender: &'a ChunkSender<'a>,
    output: Output,
    counts: LineCounts,
    reasons: Reasons,
    refused: Option<BufWriter<File>>,
    /// `None` where the import cannot be resumed: no checkpoints are written then.
    progress: Option<ProgressFile>,
    /// End of the lines with a final outcome, as an offset in the file, in bytes.
    offset: u64,
    /// Lines that were refused because of a reference to a document that may come later in the
    /// file.
    again: Vec<(u64, Vec<u8>)>,
    begun: Instant,
    told: Instant,
    /// Number of lines that earlier runs have done.
    before: u64,
}

pub(super) async fn import(
    command: ImportDocuments,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    command.check_files()?;
    let mut progress = command.progress(api)?;
    let ResumeState { mark, reasons, .. } = command.left(progress.as_mut(), output)?;
    let refused = match &command.refused {
        Some(path) => {
            let kept = command.refusals_of(&mark).unwrap_or(0);
            Some(BufWriter::new(open(path, kept)?))
        }
        None => None,
    };
    let lines = Lines::open(&command.file, mark.offset, mark.counts.lines)?;
    let sender = ChunkSender::new(api, &command, output);
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
    /// Refuses output files that are the input file.
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
            let what =
                format!("--missing is the directory of {name}: files there would be overwritten");
            return Err(Failure::usage(what)
                .with_hint("name another directory; it is created if it does not exist"));
        }
        Ok(())
    }

    /// The progress file, where the input is a regular file.
    fn progress(&self, api: &Api) -> Result<Option<ProgressFile>, Failure> {
        if self.file.as_os_str() == "-" {
            return Ok(None);
        }
        let found = std::fs::metadata(&self.file).map_err(|error| unusable(&self.file, &error))?;
        let mut path = self.file.clone().into_os_string();
        path.push(".progress");
        let source = ImportIdentity::new(&api.base(), self, &found);
        let noted = if self.relaxed {
            FlushMode::Later
        } else {
            FlushMode::AtOnce
        };
        let progress = ProgressFile::new(path.into(), source, noted);
        Ok(Some(progress).filter(|_| found.is_file()))
    }

    /// The state to resume from. Without one the import begins at the first line: lines that are
    /// sent again change nothing.
    fn left(
        &self,
        progress: Option<&mut ProgressFile>,
        output: Output,
    ) -> Result<ResumeState, Failure> {
        let Some(progress) = progress else {
            return Ok(ResumeState::default());
        };
        if self.anew {
            progress.forget();
            return Ok(ResumeState::default());
        }
        let file = self.file.display();
        let why = match progress.earlier()? {
            PriorProgress::Nothing => return Ok(ResumeState::default()),
            PriorProgress::This(left) if self.refusals_of(&left.mark).is_some() => {
                progress.go_on(&left)?;
                let lines = left.mark.counts.lines;
                output.remark(&format!("{file}: resuming after line {lines}"));
                return Ok(left);
            }
            PriorProgress::This(_) => {
                progress.forget();
                "the file --refused lacks lines that were refused before".to_owned()
            }
            // Until a checkpoint is written here, the other import can still be resumed.
            PriorProgress::Another(what) => what,
        };
        output.remark(&format!("{file}: {why}: starting at the first line"));
        Ok(ResumeState::default())
    }

    /// Bytes of the file of rejected lines that an earlier run has written; `None`: some of them
    /// are missing.
    fn refusals_of(&self, mark: &Checkpoint) -> Option<u64> {
        let Some(path) = self.refused.as_ref().filter(|_| mark.counts.refused > 0) else {
            return Some(0);
        };
        let refusals = mark.refusals.as_ref()?;
        let is_same = refusals.path == told_path(path);
        let is_whole = std::fs::metadata(path).is_ok_and(|found| found.len() >= refusals.bytes);
        (is_same && is_whole).then_some(refusals.bytes)
    }
}

/// The absolute form of a path, as the progress file holds it.
fn told_path(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.to_string_lossy().into_owned()
}

/// Opens the file of rejected lines and cuts it to `kept` bytes.
fn open(path: &Path, kept: u64) -> Result<File, Failure> {
    let opened = || {
        let file = File::options().append(true).create(true).open(path)?;
        file.set_len(kept)?;
        Ok(file)
    };
    opened().map_err(|error| unusable(path, &error))
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

    /// Counts the outcomes of a chunk. Rejected lines are reported, or kept for another attempt.
    fn take(&mut self, chunk: &LineChunk, answer: ImportTotals) -> Result<(), Failure> {
        self.count(&answer);
        let texts: Vec<&[u8]> = chunk.text.split(|byte| *byte == b'\n').collect();
        for (place, problem) in answer.refused {
            let (line, text) = (chunk.first + place as u64, texts[place]);
            let own = |one: &UnresolvedReference| one.to == self.command.collection;
            // The line may refer to one that comes later in the file.
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

    fn count(&mut self, answer: &ImportTotals) {
        self.counts.created += answer.created;
        self.counts.changed += answer.changed;
        self.counts.unchanged += answer.unchanged;
    }

    fn refuse(&mut self, line: u64, text: &[u8], problem: &DocumentProblem) -> Result<(), Failure> {
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

    /// Prints the progress and writes a checkpoint, at intervals of [`TOLD_EVERY`].
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

    /// Writes a checkpoint; returns whether it was written.
    fn note(&mut self) -> Result<bool, Failure> {
        if self.is_doubtful() {
            // Checkpoints from before the outage still hold; later ones would not.
            self.progress = None;
        }
        // Lines that wait for another attempt are only in memory: a checkpoint would skip them.
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
        let noted = progress.note(&Checkpoint {
            offset: self.offset,
            counts: self.counts.clone(),
            refusals,
        });
        if let Err(failure) = noted {
            // The import goes on all the same, and begins at the first line if it is broken off.
            self.progress = None;
            let message = failure.message;
            self.output.remark(&format!(
                "cannot save the progress of the import: {message}"
            ));
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether acknowledged lines may be lost: they were sent with --relaxed, and the server was
    /// away.
    fn is_doubtful(&self) -> bool {
        self.command.relaxed && self.sender.was_away()
    }

    /// Writes a checkpoint after a failure, where that is safe.
    fn break_off(&mut self, failure: Failure) -> Failure {
        // With --relaxed, acknowledged lines may not be durable yet.
        if self.counts.lines == 0 || self.command.relaxed {
            return failure;
        }
        let lines = self.counts.lines;
        match self.note() {
            Ok(true) => self.output.remark(&format!(
                "{lines} lines are imported: run the same command again to resume after them"
            )),
            Ok(false) => {}
            Err(second) => self.output.remark(&second.message),
        }
        failure
    }

    /// Sends the lines again that referred to lines later in the file, as long as that helps.
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
        self.output.answer(&answer, |counts: LineCounts| {
            format!(
                "{} lines in {seconds:.1} s: {} documents are new, {} changed, {} unchanged, {} \
                 lines were refused",
                counts.lines, counts.created, counts.changed, counts.unchanged, counts.refused
            )
        })?;
        for line in self.reasons.lines() {
            self.output.remark(&line);
        }
        if is_doubtful {
            return Err(Failure::failed(
                "import_doubtful",
                "the server was unreachable for a time, and may have lost lines that were sent \
                 with --relaxed before",
            )
            .with_hint(
                "run the same command again: lines that were already imported change nothing",
            ));
        }
        match counts.refused {
            0 => Ok(()),
            refused => Err(Failure::failed(
                "lines_refused",
                format!("{refused} lines were refused"),
            )
            .with_hint(match &self.command.refused {
                Some(path) => format!("{} lists them with the reasons", path.display()),
                None => "--refused FILE writes them to a file with the reasons".to_owned(),
            })),
        }
    }
}
