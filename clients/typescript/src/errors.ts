/**
 * What can go wrong, as one family of errors.
 *
 * Every error carries a stable `code` (the documentation of Egret lists them) and says with
 * `retryable` whether the same request may succeed later without being changed.
 */

import { type Metadata, status as Status } from "@grpc/grpc-js";

import type { Enqueued } from "./model.js";
import type { Error as ItemError } from "./generated/queue.js";

export interface EgretErrorOptions {
  retryable?: boolean;
  cause?: unknown;
}

/** Something was refused or failed. */
export class EgretError extends Error {
  /** Stable. */
  readonly code: string;
  /** Whether the same request may succeed later without being changed. */
  readonly retryable: boolean;

  constructor(code: string, message: string, options: EgretErrorOptions = {}) {
    super(`${code}: ${message}`, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.code = code;
    this.retryable = options.retryable ?? false;
  }
}

/** The request is malformed or out of range. */
export class InvalidRequest extends EgretError {}

/** No token, or one that Egret does not know. */
export class Unauthenticated extends EgretError {}

/** The token does not carry the needed scope. */
export class Denied extends EgretError {}

/** There is no such task, queue or schedule. */
export class NotFound extends EgretError {}

/** The request contradicts the present state. */
export class Conflict extends EgretError {}

/** A named limit is reached, or the request is too large. */
export class LimitReached extends EgretError {}

/** Egret cannot be reached, or something it needs is not there at the moment. */
export class Unavailable extends EgretError {}

/** The time allowed has passed. */
export class TimedOut extends EgretError {}

/** A fault of Egret or of the machine under it. */
export class Internal extends EgretError {}

/** The lease of the report has ended, and another worker may hold the task by now. */
export class LeaseLost extends EgretError {}

/**
 * The connection was lost after a task was sent and before its acknowledgement came.
 *
 * The task may have been enqueued or not. Tasks with a `uniqueKey` are sent again by themselves and
 * do not end like this while Egret can be reached again in time: within the `patienceMs` of the client,
 * and before their `uniqueWindowMs` is over. For others the caller decides: enqueue again and perhaps
 * have the task twice, or not. `cause` is the error that ended the connection, or was met after it.
 */
export class UnknownOutcome extends EgretError {
  constructor(cause: EgretError, options: { retryable?: boolean; why?: string } = {}) {
    const message = "the connection was lost before the task was acknowledged, it may be enqueued or not";
    const { retryable, why = "" } = options;
    super("unknown_outcome", `${message}${why}: ${cause.message}`, { cause, retryable });
  }
}

/**
 * Some tasks of an `enqueueMany` were refused; the others are enqueued. Code and message are those
 * of the first task that was refused.
 */
export class EnqueueRefused extends EgretError {
  /** One for each task, in their order. */
  readonly outcomes: ReadonlyArray<Enqueued | EgretError>;

  constructor(outcomes: ReadonlyArray<Enqueued | EgretError>) {
    const refused = outcomes.filter((outcome) => outcome instanceof EgretError);
    const first = refused[0];
    const message = `${refused.length} of ${outcomes.length} tasks were refused, first: ${first?.message}`;
    super(first?.code ?? "refused", message, { retryable: refused.every((error) => error.retryable) });
    this.outcomes = outcomes;
  }
}

/** The task whose result was waited for is dead; the message is its last error. */
export class TaskFailed extends EgretError {}

/** The task whose result was waited for was cancelled. */
export class TaskCancelled extends EgretError {}

// One table for calls, streams and the items of a batch, so that a code means the same class everywhere.
const BY_CODE = new Map<string, typeof EgretError>([
  ["invalid_request", InvalidRequest],
  ["queue_not_found", NotFound],
  ["task_not_found", NotFound],
  ["schedule_not_found", NotFound],
  ["attachment_not_found", NotFound],
  ["queue_draining", Conflict],
  ["queue_in_use", Conflict],
  ["task_wrong_state", Conflict],
  ["attachment_exists", Conflict],
  ["lease_lost", LeaseLost],
  ["limit_exceeded", LimitReached],
  ["payload_too_large", LimitReached],
  ["log_batch_too_large", LimitReached],
  ["log_busy", LimitReached],
  ["queue_disk_full", Unavailable],
  ["queue_partition_failed", Unavailable],
  ["stopping", Unavailable],
  ["log_full", Unavailable],
  ["log_stopped", Unavailable],
  ["log_closed", Unavailable],
  ["log_fenced", Unavailable],
  ["queue_corrupt", Internal],
  ["queue_files", Internal],
  ["attachment_damaged", Internal],
]);

const BY_STATUS: Partial<Record<Status, typeof EgretError>> = {
  [Status.INVALID_ARGUMENT]: InvalidRequest,
  [Status.OUT_OF_RANGE]: InvalidRequest,
  [Status.UNAUTHENTICATED]: Unauthenticated,
  [Status.PERMISSION_DENIED]: Denied,
  [Status.NOT_FOUND]: NotFound,
  [Status.FAILED_PRECONDITION]: Conflict,
  [Status.ALREADY_EXISTS]: Conflict,
  [Status.ABORTED]: Conflict,
  [Status.RESOURCE_EXHAUSTED]: LimitReached,
  [Status.UNAVAILABLE]: Unavailable,
  [Status.CANCELLED]: Unavailable,
  [Status.DEADLINE_EXCEEDED]: TimedOut,
};

// Where the connection failed rather than Egret refused: trying again can help.
const TRANSIENT = new Set<Status>([
  Status.UNAVAILABLE,
  Status.CANCELLED,
  Status.DEADLINE_EXCEEDED,
  Status.RESOURCE_EXHAUSTED,
  Status.ABORTED,
]);

// A stream that is torn off midway can end like this too, but without a code.
const TORN = new Set<Status>([Status.INTERNAL, Status.UNKNOWN]);

/** How a call or a stream has ended. */
export interface Ended {
  code: Status;
  details: string;
  metadata?: Metadata;
}

/** The code of an error that Egret itself answered with, if it did. */
export function toldCode(ended: Ended): string | undefined {
  return ended.metadata?.get("egret-code")[0]?.toString();
}

/** The error that a gRPC status stands for. */
export function ofStatus(ended: Ended): EgretError {
  if (ended.code === Status.OK) {
    return new Unavailable("stream_ended", "egret ended the stream", { retryable: true });
  }
  const code = toldCode(ended);
  const torn = code === undefined && TORN.has(ended.code);
  const byStatus = torn ? Unavailable : (BY_STATUS[ended.code] ?? Internal);
  const kind = BY_CODE.get(code ?? "") ?? byStatus;
  const name = Status[ended.code].toLowerCase();
  const told = ended.metadata?.get("egret-retryable")[0]?.toString();
  // `too large` shares a status with limits that pass.
  const passes = (torn || TRANSIENT.has(ended.code)) && !code?.endsWith("_too_large");
  const retryable = told === undefined ? passes : told === "true";
  return new kind(code ?? name, ended.details || name, { retryable });
}

/** The error that something thrown by gRPC stands for. */
export function ofThrown(error: unknown): EgretError {
  if (error instanceof EgretError) {
    return error;
  }
  if (error instanceof Error && "code" in error && typeof error.code === "number") {
    return ofStatus(error as unknown as Ended);
  }
  return new Internal("internal", String(error), { cause: error });
}

/** The error of one item of a batch. */
export function ofItem(error: ItemError): EgretError {
  // Of a code that a newer Egret has come to know nothing is said but this.
  const unknown = error.retryable ? Unavailable : EgretError;
  const kind = BY_CODE.get(error.code) ?? unknown;
  return new kind(error.code, error.message, { retryable: error.retryable });
}
