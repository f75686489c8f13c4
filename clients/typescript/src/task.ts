/** What a handler is given, and what it throws to decide about its task. */

import type * as pb from "./generated/queue.js";
import { decode, gettersOf, milliseconds, moment } from "./payload.js";

/** Thrown by a handler: trying again cannot help, the task is dead at once. */
export class PermanentError extends Error {
  override name = "PermanentError";
}

/** Thrown by a handler: not now, again after a delay in milliseconds. The attempt counts. */
export class Retry extends Error {
  override name = "Retry";
  readonly delayMs: number;
  readonly reason: string;

  constructor(delayMs = 0, reason = "") {
    super(`again in ${delayMs} ms${reason && `: ${reason}`}`);
    this.delayMs = milliseconds(delayMs, "delayMs");
    this.reason = reason;
  }
}

/** Thrown by a handler: not yet, again after a delay in milliseconds. The attempt does not count. */
export class Snooze extends Error {
  override name = "Snooze";
  readonly delayMs: number;

  constructor(delayMs: number) {
    super(`again in ${delayMs} ms`);
    this.delayMs = milliseconds(delayMs, "delayMs");
  }
}

/** A task in the hands of a handler. */
export class Task<Payload = any> {
  readonly #assignment: pb.Assignment;
  #payload: Payload | undefined;
  #decoded = false;
  #controller: AbortController | undefined;
  #aborted: Error | undefined;

  /** @internal */
  constructor(assignment: pb.Assignment) {
    this.#assignment = assignment;
  }

  get id(): string {
    return this.#assignment.id;
  }
  get queue(): string {
    return this.#assignment.queue;
  }
  /** What was enqueued: bytes (`Buffer`), or what the JSON holds. */
  get payload(): Payload {
    if (!this.#decoded) {
      this.#payload = decode(this.#assignment.payload, this.#assignment.format);
      this.#decoded = true;
    }
    return this.#payload as Payload;
  }
  /** 1 for the first. */
  get attempt(): number {
    return this.#assignment.attempt;
  }
  get maxAttempts(): number {
    return this.#assignment.maxAttempts;
  }
  get priority(): number {
    return this.#assignment.priority;
  }
  get orderingKey(): string {
    return this.#assignment.orderingKey;
  }
  get createdAt(): Date | undefined {
    return moment(this.#assignment.createdAtMs);
  }
  get tags(): readonly string[] {
    return this.#assignment.tags;
  }
  get metadata(): Readonly<Record<string, string>> {
    return this.#assignment.metadata;
  }
  get traceparent(): string {
    return this.#assignment.traceparent;
  }
  get tracestate(): string {
    return this.#assignment.tracestate;
  }

  /**
   * Aborted when the work is in vain: the lease is lost (expired, timed out, cancelled), or the
   * worker stops and its grace time is over. What the handler returns then is dropped.
   */
  get signal(): AbortSignal {
    // Most handlers never ask, and a controller is not cheap.
    this.#controller ??= new AbortController();
    if (this.#aborted) {
      this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  /** All of it but the signal. */
  toJSON(): Record<string, unknown> {
    return gettersOf(this, ["signal"]);
  }

  /** @internal */
  abort(reason: Error): void {
    this.#aborted ??= reason;
    this.#controller?.abort(this.#aborted);
  }
}

/** Returns the task's result, or throws what decides about the task. */
export type Handler<Payload = any> = (task: Task<Payload>) => unknown;
