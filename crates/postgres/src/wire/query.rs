//! Running statements on a session and collecting their rows within limits.
//!
//! Statements go through the extended protocol, so that a statement whose answer exceeds its limit
//! can be taken back: the Sync that commits is sent only when the answer is complete, and an
//! unfinished one is cancelled and followed by a message that is bound to fail. Several statements
//! in one text are refused by that protocol while parsing, before anything ran; a text without
//! parameters is then sent again through the simple protocol.

use bytes::BytesMut;
use egret_base::Limit;
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{self, DataRowBody, Message, RowDescriptionBody};
use postgres_protocol::message::frontend;

use super::connection::{MessageHeader, protocol_error};
use super::error::{ServerError, WireError};
use super::session::{Session, Transaction, cancel};
use super::{Answer, Column};

/// SQLSTATE of, among others, "cannot insert multiple commands into a prepared statement".
const SYNTAX_ERROR: &str = "42601";

/// A portal that is never opened: executing it fails, and so does the transaction around it.
const NO_PORTAL: &str = "egret answer too large";

/// The largest notice that is looked at, in bytes: those before the end of a session are short in
/// every language.
const SHUTDOWN_WARNING_BYTES_MAX: usize = 4096;

/// Limits that the caller sets.
#[derive(Clone, Copy)]
struct QueryLimits {
    rows: Limit,
    bytes: Limit,
}

/// How the answer to a statement ended before its ReadyForQuery.
enum QueryEnd {
    Complete,
    /// The server failed it; `parsed` tells whether the text had been accepted by then.
    Failed {
        error: Box<ServerError>,
        was_parsed: bool,
    },
    /// Egret stopped it before its end.
    Abandoned(WireError),
}

/// The answer as far as it was received.
#[derive(Default)]
struct ResultBuilder {
    answer: Answer,
    bytes: u64,
    is_parsed: bool,
}

impl Session {
    /// Runs `sql` with `params` as text and returns the rows as text.
    ///
    /// One statement is expected. Without parameters the text may hold several; the answer is then
    /// that of the last one that returned rows, with the command tag of the last statement. NOTICEs
    /// are dropped.
    ///
    /// At most `rows_max` rows with together `bytes_max` bytes (as they come on the wire) are
    /// returned. A larger answer is an error, the statement is cancelled and, outside of a
    /// transaction block, has changed nothing; among several statements those already committed
    /// stay. The session can be used again after every error but those of
    /// [`Kind`](egret_base::Kind) `Unavailable` or `Internal`.
    ///
    /// Dropping the future leaves the session [broken](WireError::Broken).
    ///
    /// # Errors
    /// [`WireError::Server`] for what the server refuses; [`WireError::Limit`] with the limit
    /// `query_rows_max` or `query_bytes_max`; [`WireError::CopyRefused`];
    /// [`WireError::NotUtf8`]; [`WireError::Unsendable`] when the text holds a zero byte or there
    /// are more than 65535 parameters; [`WireError::Lost`] and [`WireError::Protocol`] when the
    /// session is no longer usable.
    pub async fn query(
        &mut self,
        sql: &str,
        params: &[Option<String>],
        rows_max: u64,
        bytes_max: u64,
    ) -> Result<Answer, WireError> {
        let limits = QueryLimits {
            rows: Limit::new("query_rows_max", rows_max),
            bytes: Limit::new("query_bytes_max", bytes_max),
        };
        let transaction = self.ready_status.ok_or(WireError::Broken)?;
        let extended = extended_messages(sql, params)?;
        let simple = simple_message(sql)?;
        // Inside of a transaction block the failed attempt would abort the block.
        if params.is_empty() && transaction != Transaction::Idle {
            return self.run_simple(&simple, limits).await;
        }
        match self.run_extended(&extended, limits).await {
            Err((WireError::Server(error), false))
                if params.is_empty() && error.sqlstate == SYNTAX_ERROR =>
            {
                self.run_simple(&simple, limits).await
            }
            Err((error, _)) => Err(error),
            Ok(answer) => Ok(answer),
        }
    }

    /// Runs texts through the simple protocol, each by itself, all sent at once: one wait for all
    /// of them. The limits hold for each.
    ///
    /// # Errors
    /// As [`Session::query`]; when several texts fail, the first error.
    pub async fn batch(
        &mut self,
        texts: &[&str],
        rows_max: u64,
        bytes_max: u64,
    ) -> Result<Vec<Answer>, WireError> {
        let limits = QueryLimits {
            rows: Limit::new("query_rows_max", rows_max),
            bytes: Limit::new("query_bytes_max", bytes_max),
        };
        self.ready_status.ok_or(WireError::Broken)?;
        let mut messages = BytesMut::new();
        for text in texts {
            frontend::query(text, &mut messages).map_err(zero_byte_error)?;
        }
        self.ready_status = None;
        self.connection.send(&messages).await?;
        let mut answers = Vec::with_capacity(texts.len());
        let mut failure = None;
        for _ in texts {
            self.ready_status = None;
            match self.finish_simple(limits).await {
                Ok(answer) => answers.push(answer),
                Err(error) if self.ready_status.is_some() => failure = failure.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        failure.map_or(Ok(answers), Err)
    }

    /// The error comes with whether the text had been parsed when it occurred.
    async fn run_extended(
        &mut self,
        messages: &BytesMut,
        limits: QueryLimits,
    ) -> Result<Answer, (WireError, bool)> {
        let not_parsed = |error| (error, false);
        self.ready_status = None;
        self.connection.send(messages).await.map_err(not_parsed)?;
        let mut result = ResultBuilder::default();
        let end = self.collect_result(&mut result, limits).await.map_err(not_parsed)?;
        let mut closing = BytesMut::new();
        if let QueryEnd::Abandoned(_) = end {
            self.stop_statement().await.map_err(not_parsed)?;
            frontend::copy_fail("refused by egret", &mut closing).expect("no zero byte");
            frontend::execute(NO_PORTAL, 0, &mut closing).expect("no zero byte");
        }
        frontend::sync(&mut closing);
        self.connection.send(&closing).await.map_err(not_parsed)?;
        let late_error = self.drain_until_ready().await.map_err(not_parsed)?;
        match (end, late_error) {
            (QueryEnd::Complete, None) => Ok(result.answer),
            // A deferred constraint fails at the commit, after the statement was complete.
            (QueryEnd::Complete, Some(error)) => Err((WireError::Server(error), true)),
            (QueryEnd::Failed { error, was_parsed: parsed }, _) => {
                Err((WireError::Server(error), parsed))
            }
            (QueryEnd::Abandoned(error), _) => Err((error, true)),
        }
    }

    async fn run_simple(
        &mut self,
        message: &BytesMut,
        limits: QueryLimits,
    ) -> Result<Answer, WireError> {
        self.ready_status = None;
        self.connection.send(message).await?;
        self.finish_simple(limits).await
    }

    /// Reads the answer to a text that was sent.
    async fn finish_simple(&mut self, limits: QueryLimits) -> Result<Answer, WireError> {
        let mut result = ResultBuilder::default();
        let mut failure = None;
        while self.ready_status.is_none() {
            match self.collect_result(&mut result, limits).await? {
                QueryEnd::Complete => {}
                QueryEnd::Failed { error, .. } => failure = Some(WireError::Server(error)),
                QueryEnd::Abandoned(error) => {
                    self.stop_statement().await?;
                    let mut refusal = BytesMut::new();
                    frontend::copy_fail("refused by egret", &mut refusal).expect("no zero byte");
                    self.connection.send(&refusal).await?;
                    self.drain_until_ready().await?;
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(result.answer), Err)
    }

    /// Reads until a statement is complete or failed, or the session is ready.
    async fn collect_result(
        &mut self,
        result: &mut ResultBuilder,
        limits: QueryLimits,
    ) -> Result<QueryEnd, WireError> {
        let mut shutdown_warning = None;
        loop {
            let header = self
                .connection
                .next_header()
                .await
                .map_err(|error| explain_loss(error, shutdown_warning.take()))?;
            match header.tag {
                backend::DATA_ROW_TAG => {
                    if let Err(limit) = result.admit_row(header, limits) {
                        return Ok(QueryEnd::Abandoned(limit));
                    }
                    let message = self.connection.read_message(header).await?;
                    let Message::DataRow(row) = message else {
                        return Err(WireError::Protocol("a row was expected".to_owned()));
                    };
                    if let Err(error) = result.push_row(&row) {
                        return match error {
                            WireError::NotUtf8 { .. } => Ok(QueryEnd::Abandoned(error)),
                            other => Err(other),
                        };
                    }
                }
                backend::ERROR_RESPONSE_TAG => {
                    let error = Box::new(self.connection.read_server_error(header).await?);
                    if error.ends_session() {
                        return Err(WireError::Server(error));
                    }
                    return Ok(QueryEnd::Failed { error, was_parsed: result.is_parsed });
                }
                backend::COPY_IN_RESPONSE_TAG | backend::COPY_OUT_RESPONSE_TAG => {
                    return Ok(QueryEnd::Abandoned(WireError::CopyRefused));
                }
                backend::COPY_DATA_TAG | backend::COPY_DONE_TAG => {
                    self.connection.skip_message(header).await?;
                }
                backend::PARAMETER_STATUS_TAG => self.record_parameter(header).await?,
                backend::NOTICE_RESPONSE_TAG if header.body_bytes <= SHUTDOWN_WARNING_BYTES_MAX => {
                    let notice = self.connection.read_server_error(header).await?;
                    shutdown_warning = notice.is_shutdown_warning().then(|| Box::new(notice));
                }
                backend::NOTICE_RESPONSE_TAG | backend::NOTIFICATION_RESPONSE_TAG => {
                    self.connection.skip_message(header).await?;
                }
                _ => match self.connection.read_small_message(header).await? {
                    Message::ParseComplete => result.is_parsed = true,
                    Message::RowDescription(body) => result.start_rows(&body)?,
                    Message::CommandComplete(body) => {
                        result.answer.command_tag = body.tag().map_err(protocol_error)?.to_owned();
                        return Ok(QueryEnd::Complete);
                    }
                    Message::EmptyQueryResponse => return Ok(QueryEnd::Complete),
                    Message::ReadyForQuery(body) => {
                        self.ready_status = Some(Transaction::from_status(body.status()));
                        return Ok(QueryEnd::Complete);
                    }
                    _ => {}
                },
            }
        }
    }

    /// Skips everything up to ReadyForQuery; returns an error of the server met on the way.
    async fn drain_until_ready(&mut self) -> Result<Option<Box<ServerError>>, WireError> {
        let mut failure = None;
        while self.ready_status.is_none() {
            let header = self.connection.next_header().await?;
            match header.tag {
                backend::ERROR_RESPONSE_TAG => {
                    let error = Box::new(self.connection.read_server_error(header).await?);
                    if error.ends_session() {
                        return Err(WireError::Server(error));
                    }
                    failure.get_or_insert(error);
                }
                backend::PARAMETER_STATUS_TAG => self.record_parameter(header).await?,
                backend::READY_FOR_QUERY_TAG => {
                    if let Message::ReadyForQuery(body) =
                        self.connection.read_small_message(header).await?
                    {
                        self.ready_status = Some(Transaction::from_status(body.status()));
                    }
                }
                _ => self.connection.skip_message(header).await?,
            }
        }
        Ok(failure)
    }

    /// Cancels what runs. The signal is on its way to the backend when this returns, so it cannot
    /// hit a statement that is sent later.
    async fn stop_statement(&self) -> Result<(), WireError> {
        cancel(&self.socket_dir, self.port, self.key).await
    }
}

impl ResultBuilder {
    fn start_rows(&mut self, description: &RowDescriptionBody) -> Result<(), WireError> {
        let mut columns = Vec::new();
        let mut fields = description.fields();
        while let Some(field) = fields.next().map_err(protocol_error)? {
            columns.push(Column { name: field.name().to_owned(), type_oid: field.type_oid() });
        }
        self.answer.columns = columns;
        self.answer.rows.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Decides by its header alone whether one more row fits.
    fn admit_row(&mut self, row: MessageHeader, limits: QueryLimits) -> Result<(), WireError> {
        limits.rows.check(self.answer.rows.len() as u64 + 1)?;
        self.bytes += row.body_bytes as u64;
        limits.bytes.check(self.bytes)?;
        Ok(())
    }

    fn push_row(&mut self, body: &DataRowBody) -> Result<(), WireError> {
        let buffer = body.buffer();
        let mut row = Vec::with_capacity(self.answer.columns.len());
        let mut ranges = body.ranges();
        while let Some(range) = ranges.next().map_err(protocol_error)? {
            let value = range.map(|range| std::str::from_utf8(&buffer[range]).map(str::to_owned));
            match value.transpose() {
                Ok(value) => row.push(value),
                Err(_) => {
                    let column = self.answer.columns.get(row.len());
                    return Err(WireError::NotUtf8 {
                        column: column.map(|column| column.name.clone()).unwrap_or_default(),
                    });
                }
            }
        }
        self.answer.rows.push(row);
        Ok(())
    }
}

/// Parse, Bind, Describe, Execute and Flush; without the Sync that would commit.
fn extended_messages(sql: &str, params: &[Option<String>]) -> Result<BytesMut, WireError> {
    let mut messages = BytesMut::new();
    frontend::parse("", sql, [], &mut messages).map_err(zero_byte_error)?;
    let write = |value: &Option<String>, buffer: &mut BytesMut| match value {
        Some(text) => {
            buffer.extend_from_slice(text.as_bytes());
            Ok(IsNull::No)
        }
        None => Ok(IsNull::Yes),
    };
    frontend::bind("", "", [0], params, write, [0], &mut messages)
        .map_err(|_| WireError::Unsendable("there are too many parameters, or too large ones"))?;
    frontend::describe(b'P', "", &mut messages).expect("no zero byte");
    frontend::execute("", 0, &mut messages).expect("no zero byte");
    frontend::flush(&mut messages);
    Ok(messages)
}

fn simple_message(sql: &str) -> Result<BytesMut, WireError> {
    let mut message = BytesMut::new();
    frontend::query(sql, &mut message).map_err(zero_byte_error)?;
    Ok(message)
}

/// The reason of a session's end: if the connection was lost, the warning that came right before.
fn explain_loss(error: WireError, shutdown_warning: Option<Box<ServerError>>) -> WireError {
    match (error, shutdown_warning) {
        (WireError::Lost(_), Some(farewell)) => WireError::Server(farewell),
        (error, _) => error,
    }
}

fn zero_byte_error(_: std::io::Error) -> WireError {
    WireError::Unsendable("its text holds a zero byte")
}
