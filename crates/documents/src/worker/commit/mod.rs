//! The path of a document's write, from the queue to the reply.
//!
//! A write passes through these types, each made of the one before:
//!
//! 1. [`WriteOp`](crate::core::write::WriteOp): the operation that a caller asks for, as bytes;
//!    with its body validated, it is part of a [`WriteRequest`](crate::core::write::WriteRequest).
//! 2. [`QueuedWrite`](queued::QueuedWrite): the requests that are executed all or none, waiting for
//!    their locks, with the channel for the reply.
//! 3. [`InFlightWrite`](in_flight::InFlightWrite): an admitted write, which holds its locks, and
//!    the state that was looked up for it.
//! 4. `Result<`[`PlannedWrite`](crate::core::decision::PlannedWrite)`,
//!    `[`WriteRejection`](crate::core::decision::WriteRejection)`>`: the decision of `core`, for
//!    each request.
//! 5. [`WriteBatch`](batch::WriteBatch): the planned writes of one commit, written by one
//!    statement.
//! 6. [`WriteResult`](result::WriteResult): the reply to the caller, after the commit.
//!
//! `writer` runs these steps, in this order: `admission` admits writes that do not conflict,
//! `revalidate` validates those again whose definition has changed, `context` looks up the state,
//! `decide` plans (and `cascade` for changed identities), `batch` makes rows of the plan, and
//! `apply` executes the statement and replies.

mod admission;
mod alias_cache;
mod apply;
pub(crate) mod batch;
mod cascade;
mod context;
mod decide;
mod durability;
pub(crate) mod in_flight;
pub(crate) mod queued;
pub(crate) mod result;
mod revalidate;
pub(crate) mod writer;
