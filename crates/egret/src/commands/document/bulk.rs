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

use self::lines::{CHUNK_LINES_MAX, LineChunk, Lines};
use self::progress::{
    Checkpoint, FlushMode, ImportIdentity, LineCounts, PriorProgress, ProgressFile, Refusals,
    ResumeState,
};
use self::sending::{ChunkSender, ImportTotals};
use super::reasons::{DocumentProblem, Reasons, UnresolvedReference};
use super::request::{as_str_pairs, database_parameters, file_failure};
use crate::api::Api;
use crate::cli::{DatabaseArgs, ImportDocuments};
use crate::failure::Failure;
use crate::output::Output;

/// Requests that are in flight at a time.
const REQUESTS_IN_FLIGHT_MAX: usize = 4;

/// Interval between two reports of progress, and two checkpoints. With --relaxed a checkpoint is
/// written one interval later, when PostgreSQL has flushed the lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn export(
    collection: &str,
    meta: bool,
    place: &DatabaseArgs,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut query = database_parameters(place);
    if meta {
        query.push(("meta".to_owned(), "true".to_owned()));
    }
    let path = ["collections", collection, "export"];
    let mut parts = std::pin::pin!(api.stream(&path, &as_str_pairs(&query)).await?);
    let mut ends_a_line = true;
    while let Some(part) = parts.try_next().await? {
        ends_a_line = part.last().is_none_or(|last| *last == b'\n');
        output.write_chunk(&part)?;
    }
    if ends_a_line {
        Ok(())
    } else {
        Err(Failure::failed("failed", "the export is incomplete: see the server's log"))
    }
}

/// An import that is being run.
struct Import<'a> {
    command: &'a ImportDocuments,
    sender: &'a ChunkSender<'a>,
    output: Output,
    counts: LineCounts,
    reasons: Reasons,
    refused_file: Option<BufWriter<File>>,
    /// `None` where the import cannot be resumed: no checkpoints are written then.
    progress: Option<ProgressFile>,
    /// End of the lines with a final outcome, as an offset in the file, in bytes.
    offset: u64,
    /// Lines that were refused because of a reference to a document that may come later in the
    /// file.
    retry_lines: Vec<(u64, Vec<u8>)>,
    started_at: Instant,
    reported_at: Instant,
    /// Number of lines that earlier runs have done.
    lines_before: u64,
}

pub(super) async fn import(
    command: ImportDocuments,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    command.check_files()?;
    let mut progress = command.progress_file(api)?;
    let ResumeState { checkpoint, reasons, .. } =
        command.resume_state(progress.as_mut(), output)?;
    let refused_file = match &command.refused {
        Some(path) => {
            let kept_bytes = command.written_refusals(&checkpoint).unwrap_or(0);
            Some(BufWriter::new(open_refused_file(path, kept_bytes)?))
        }
        None => None,
    };
    let lines = Lines::open(&command.file, checkpoint.offset, checkpoint.counts.lines)?;
    let sender = ChunkSender::new(api, &command, output);
    let mut import = Import {
        command: &command,
        sender: &sender,
        output,
        lines_before: checkpoint.counts.lines,
        counts: checkpoint.counts,
        reasons,
        refused_file,
        progress,
        offset: checkpoint.offset,
        retry_lines: Vec::new(),
        started_at: Instant::now(),
        reported_at: Instant::now(),
    };
    import.run(lines).await?;
    import.retry_deferred().await?;
    import.finish()
}

impl ImportDocuments {
    /// Refuses output files that are the input file.
    fn check_files(&self) -> Result<(), Failure> {
        let Ok(file) = std::fs::canonicalize(&self.file) else {
            return Ok(());
        };
        let is_same_path = |other: &Path, this: &Path| {
            std::fs::canonicalize(other).is_ok_and(|other| other == this)
        };
        let name = self.file.display();
        if self.refused.as_ref().is_some_and(|path| is_same_path(path, &file)) {
            let message = format!("--refused is {name} itself: its lines would be lost");
            return Err(Failure::usage(message));
        }
        let directory = file.parent().unwrap_or(&file);
        if self.missing.as_ref().is_some_and(|path| is_same_path(path, directory)) {
            let what =
                format!("--missing is the directory of {name}: files there would be overwritten");
            return Err(Failure::usage(what)
                .with_hint("name another directory; it is created if it does not exist"));
        }
        Ok(())
    }

    /// The progress file, where the input is a regular file.
    fn progress_file(&self, api: &Api) -> Result<Option<ProgressFile>, Failure> {
        if self.file.as_os_str() == "-" {
            return Ok(None);
        }
        let metadata =
            std::fs::metadata(&self.file).map_err(|error| file_failure(&self.file, &error))?;
        let mut path = self.file.clone().into_os_string();
        path.push(".progress");
        let identity = ImportIdentity::new(&api.base(), self, &metadata);
        let flush_mode = if self.relaxed { FlushMode::Deferred } else { FlushMode::Immediate };
        let progress = ProgressFile::new(path.into(), identity, flush_mode);
        Ok(Some(progress).filter(|_| metadata.is_file()))
    }

    /// The state to resume from. Without one the import begins at the first line: lines that are
    /// sent again change nothing.
    fn resume_state(
        &self,
        progress: Option<&mut ProgressFile>,
        output: Output,
    ) -> Result<ResumeState, Failure> {
        let Some(progress) = progress else {
            return Ok(ResumeState::default());
        };
        if self.anew {
            progress.remove();
            return Ok(ResumeState::default());
        }
        let file = self.file.display();
        let reason = match progress.read_prior()? {
            PriorProgress::Nothing => return Ok(ResumeState::default()),
            PriorProgress::SameImport(state)
                if self.written_refusals(&state.checkpoint).is_some() =>
            {
                progress.resume(&state)?;
                let lines = state.checkpoint.counts.lines;
                output.print_remark(&format!("{file}: resuming after line {lines}"));
                return Ok(state);
            }
            PriorProgress::SameImport(_) => {
                progress.remove();
                "the file --refused lacks lines that were refused before".to_owned()
            }
            // Until a checkpoint is written here, the other import can still be resumed.
            PriorProgress::OtherImport(difference) => difference,
        };
        output.print_remark(&format!("{file}: {reason}: starting at the first line"));
        Ok(ResumeState::default())
    }

    /// Bytes of the file of rejected lines that an earlier run has written; `None`: some of them
    /// are missing.
    fn written_refusals(&self, checkpoint: &Checkpoint) -> Option<u64> {
        let Some(path) = self.refused.as_ref().filter(|_| checkpoint.counts.refused > 0) else {
            return Some(0);
        };
        let refusals = checkpoint.refusals.as_ref()?;
        let is_same = refusals.path == absolute_path(path);
        let is_whole =
            std::fs::metadata(path).is_ok_and(|metadata| metadata.len() >= refusals.bytes);
        (is_same && is_whole).then_some(refusals.bytes)
    }
}

/// The absolute form of a path, as the progress file holds it.
fn absolute_path(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.to_string_lossy().into_owned()
}

/// Opens the file of rejected lines and cuts it to `kept_bytes`.
fn open_refused_file(path: &Path, kept_bytes: u64) -> Result<File, Failure> {
    let open_file = || {
        let file = File::options().append(true).create(true).open(path)?;
        file.set_len(kept_bytes)?;
        Ok(file)
    };
    open_file().map_err(|error| file_failure(path, &error))
}

impl Import<'_> {
    async fn run(&mut self, mut lines: Lines<'_>) -> Result<(), Failure> {
        let sender = self.sender;
        let mut in_flight = FuturesOrdered::new();
        let mut has_more = true;
        loop {
            while has_more && in_flight.len() < REQUESTS_IN_FLIGHT_MAX {
                match lines.next().map_err(|failure| self.fail_with_checkpoint(failure))? {
                    Some(chunk) => in_flight.push_back(async move {
                        let totals = sender.deliver(&chunk.text).await?;
                        Ok::<_, Failure>((chunk, totals))
                    }),
                    None => has_more = false,
                }
            }
            let Some(delivered) = in_flight.next().await else {
                return Ok(());
            };
            let (chunk, answer) =
                delivered.map_err(|failure| self.fail_with_checkpoint(failure))?;
            self.record_chunk(&chunk, answer)?;
            self.report_progress()?;
        }
    }

    /// Counts the outcomes of a chunk. Rejected lines are reported, or kept for another attempt.
    fn record_chunk(&mut self, chunk: &LineChunk, totals: ImportTotals) -> Result<(), Failure> {
        self.add_counts(&totals);
        let texts: Vec<&[u8]> = chunk.text.split(|byte| *byte == b'\n').collect();
        for (index, problem) in totals.refused {
            let (line, text) = (chunk.first_line + index as u64, texts[index]);
            let is_own = |reference: &UnresolvedReference| reference.to == self.command.collection;
            // The line may refer to one that comes later in the file.
            if problem.references.iter().any(is_own) {
                self.retry_lines.push((line, text.to_vec()));
            } else {
                self.record_refusal(line, text, &problem)?;
            }
        }
        self.counts.lines += chunk.lines;
        self.offset = chunk.end;
        Ok(())
    }

    fn add_counts(&mut self, totals: &ImportTotals) {
        self.counts.created += totals.created;
        self.counts.changed += totals.changed;
        self.counts.unchanged += totals.unchanged;
    }

    fn record_refusal(
        &mut self,
        line: u64,
        text: &[u8],
        problem: &DocumentProblem,
    ) -> Result<(), Failure> {
        self.counts.refused += 1;
        self.reasons.add(problem);
        if self.retry_lines.is_empty()
            && let Some(progress) = &mut self.progress
        {
            progress.add_refusal(problem);
        }
        let (Some(file), Some(path)) = (&mut self.refused_file, &self.command.refused) else {
            return Ok(());
        };
        let mut record = json!(problem);
        record["line"] = line.into();
        record["document"] = serde_json::from_slice(text)
            .unwrap_or_else(|_| String::from_utf8_lossy(text).into_owned().into());
        writeln!(file, "{record}").map_err(|error| file_failure(path, &error))
    }

    /// Prints the progress and writes a checkpoint, at intervals of [`PROGRESS_INTERVAL`].
    fn report_progress(&mut self) -> Result<(), Failure> {
        if self.reported_at.elapsed() < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.reported_at = Instant::now();
        let rate = (self.counts.lines - self.lines_before) as f64
            / self.started_at.elapsed().as_secs_f64();
        self.output.print_remark(&format!(
            "{} lines, {} refused, {rate:.0} a second",
            self.counts.lines, self.counts.refused
        ));
        self.write_checkpoint().map(drop)
    }

    /// Writes a checkpoint; returns whether it was written.
    fn write_checkpoint(&mut self) -> Result<bool, Failure> {
        if self.may_have_lost_lines() {
            // Checkpoints from before the outage still hold; later ones would not.
            self.progress = None;
        }
        // Lines that wait for another attempt are only in memory: a checkpoint would skip them.
        if !self.retry_lines.is_empty() {
            return Ok(false);
        }
        let Some(progress) = &mut self.progress else {
            return Ok(false);
        };
        let mut refusals = None;
        if let (Some(file), Some(path)) = (&mut self.refused_file, &self.command.refused) {
            let flushed = file.flush().and_then(|()| file.get_ref().metadata());
            refusals = Some(Refusals {
                path: absolute_path(path),
                bytes: flushed.map_err(|error| file_failure(path, &error))?.len(),
            });
        }
        let result = progress.write_checkpoint(&Checkpoint {
            offset: self.offset,
            counts: self.counts.clone(),
            refusals,
        });
        if let Err(failure) = result {
            // The import goes on all the same, and begins at the first line if it is broken off.
            self.progress = None;
            let message = failure.message;
            self.output.print_remark(&format!("cannot save the progress of the import: {message}"));
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether acknowledged lines may be lost: they were sent with --relaxed, and the server was
    /// away.
    fn may_have_lost_lines(&self) -> bool {
        self.command.relaxed && self.sender.was_unreachable()
    }

    /// Writes a checkpoint after a failure, where that is safe.
    fn fail_with_checkpoint(&mut self, failure: Failure) -> Failure {
        // With --relaxed, acknowledged lines may not be durable yet.
        if self.counts.lines == 0 || self.command.relaxed {
            return failure;
        }
        let lines = self.counts.lines;
        match self.write_checkpoint() {
            Ok(true) => self.output.print_remark(&format!(
                "{lines} lines are imported: run the same command again to resume after them"
            )),
            Ok(false) => {}
            Err(checkpoint_failure) => self.output.print_remark(&checkpoint_failure.message),
        }
        failure
    }

    /// Sends the lines again that referred to lines later in the file, as long as that helps.
    async fn retry_deferred(&mut self) -> Result<(), Failure> {
        loop {
            let deferred = std::mem::take(&mut self.retry_lines);
            let mut refused = Vec::new();
            for lines in deferred.chunks(CHUNK_LINES_MAX) {
                let texts: Vec<&[u8]> = lines.iter().map(|(_, text)| text.as_slice()).collect();
                let totals = self.sender.deliver(&texts.join(&b'\n')).await?;
                self.add_counts(&totals);
                for (index, problem) in totals.refused {
                    let (line, text) = lines[index].clone();
                    refused.push((line, text, problem));
                }
            }
            if refused.len() == deferred.len() {
                for (line, text, problem) in refused {
                    self.record_refusal(line, &text, &problem)?;
                }
                return Ok(());
            }
            self.retry_lines = refused.into_iter().map(|(line, text, _)| (line, text)).collect();
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        if let (Some(mut file), Some(path)) = (self.refused_file.take(), &self.command.refused) {
            file.flush().map_err(|error| file_failure(path, &error))?;
        }
        if let Some(directory) = &self.command.missing {
            self.reasons.write_missing(directory)?;
        }
        let may_have_lost_lines = self.may_have_lost_lines();
        if let Some(progress) = self.progress.take().filter(|_| !may_have_lost_lines) {
            progress.remove();
        }
        let counts = &self.counts;
        let answer = serde_json::to_value(counts).expect("they are numbers");
        let seconds = self.started_at.elapsed().as_secs_f64();
        self.output.print_answer(&answer, |counts: LineCounts| {
            format!(
                "{} lines in {seconds:.1} s: {} documents are new, {} changed, {} unchanged, {} \
                 lines were refused",
                counts.lines, counts.created, counts.changed, counts.unchanged, counts.refused
            )
        })?;
        for line in self.reasons.lines() {
            self.output.print_remark(&line);
        }
        if may_have_lost_lines {
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
            refused => {
                Err(Failure::failed("lines_refused", format!("{refused} lines were refused"))
                    .with_hint(match &self.command.refused {
                        Some(path) => format!("{} lists them with the reasons", path.display()),
                        None => "--refused FILE writes them to a file with the reasons".to_owned(),
                    }))
            }
        }
    }
}
