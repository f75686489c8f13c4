/**
 * Working on tasks over one stream: credits, handlers, heartbeats, reports, and a graceful stop.
 *
 * Reports that wait are packed into one message, as tasks are on the producer's side. A report stays
 * in memory until Egret has acknowledged it, and is sent again over the next stream when the
 * connection is lost: the lease it carries stays valid.
 */

import { hostname } from "node:os";

import { Backoff, type Connection, GOODBYE_MS, Wakeup, closed, turn } from "./connection.js";
import { Duplex } from "./duplex.js";
import { EgretError, ofStatus } from "./errors.js";
import * as pb from "./generated/queue.js";
import { checkNames, count, encode, milliseconds, names } from "./payload.js";
import { type Report, type Running, cut, sizeOf, textOf } from "./report.js";
import { type Handler, PermanentError, Retry, Snooze, Task } from "./task.js";

/** Most reports in one message. */
const MESSAGE_REPORTS_MAX = 1_000;
/** A message whose results and texts have reached so many bytes takes no further report. */
const MESSAGE_BYTES_MAX = 1 << 20;
/** With so many reports unacknowledged, a worker asks for no more tasks. */
const UNACKNOWLEDGED_MAX = 10_000;
/** A larger result is not sent: its message would end the stream, for every task of the worker. */
const RESULT_BYTES_MAX = 6 << 20;
/** Egret grants no shorter lease. */
const LEASE_MS_LEAST = 100;
/** While no lease is shorter, running tasks are looked through as often as this one would need. */
const LEASE_MS_IDLE = 60_000;
/** The delay before a report that was refused for the moment is sent again; doubled each time. */
const REPORT_DELAY_MS = 100;
const REPORT_DELAY_LONGEST_MS = 5_000;

export interface WorkOptions {
  /** How many tasks are worked on at a time; 64 when left out. */
  concurrency?: number;
  /** The worker's name, for people to read. */
  name?: string;
  /** How long a task is held without a heartbeat; as the queue says when left out. */
  leaseMs?: number;
  /** How long running tasks may go on after a stop before they are given back; 30,000. */
  graceMs?: number;
  /** Stops the worker when it is aborted. */
  signal?: AbortSignal;
  /**
   * Whether SIGINT and SIGTERM stop the worker; they do not unless asked for. The second one gives back
   * at once what still runs.
   */
  signals?: boolean;
  /** Told of what is worth a line in a log; nothing is written otherwise. */
  onWarning?: (message: string, error?: unknown) => void;
}

const WORK_OPTIONS = names<WorkOptions>({
  concurrency: true,
  name: true,
  leaseMs: true,
  graceMs: true,
  signal: true,
  signals: true,
  onWarning: true,
});

/** Runs a handler for each task of some queues. Made by `Client.worker`. */
export class Worker {
  readonly #connection: Connection;
  readonly #handler: Handler;
  readonly #options: WorkOptions;
  readonly #concurrency: number;
  readonly #graceMs: number;
  readonly #hello: pb.Hello;
  /** By lease, in an encoding that keeps every byte. */
  readonly #running = new Map<string, Running>();
  /** Handlers that have not ended, those of lost leases too. */
  #busy = 0;
  #waiting: Report[] = [];
  #beats: Running[] = [];
  /** By number: the report, or the running task of a heartbeat. */
  #sent = new Map<number, Report | Running>();
  #later = 0;
  #number = 0;
  #credits = 0;
  readonly #wakeup = new Wakeup();
  readonly #backoff = new Backoff();
  /** Whether Egret may still push tasks over the stream there is, and was asked not to. */
  #hasCredits = false;
  #drainSent = false;
  /** The lease that the pace of the heartbeats is made for. */
  #paceMs = LEASE_MS_IDLE;
  #beatTimer: NodeJS.Timeout | undefined;
  readonly #timers = new Set<NodeJS.Timeout>();
  #started = false;
  #ended = false;
  #stream: Duplex<pb.WorkRequest, pb.WorkResponse> | undefined;
  #stopping = false;
  #signalled = false;
  #abandoned = false;
  /** Messages sent so far. */
  messagesSent = 0;
  /** Heartbeats sent so far. */
  heartbeatsSent = 0;
  /** Tasks whose completion Egret has acknowledged. */
  completed = 0;

  /** @internal */
  constructor(connection: Connection, queues: readonly string[], handler: Handler, options: WorkOptions) {
    checkNames(options, WORK_OPTIONS, "a worker");
    this.#concurrency = count(options.concurrency ?? 64, "concurrency");
    if (queues.length === 0 || this.#concurrency === 0) {
      throw new RangeError("a worker needs at least one queue and a concurrency of at least 1");
    }
    this.#connection = connection;
    this.#handler = handler;
    this.#options = options;
    this.#graceMs = milliseconds(options.graceMs ?? 30_000, "graceMs");
    this.#hello = {
      queues: [...queues],
      worker: options.name ?? `${hostname()}-${process.pid}`,
      leaseMs: options.leaseMs === undefined ? 0 : milliseconds(options.leaseMs, "leaseMs"),
    };
  }

  /** Tasks whose handlers run now. */
  get running(): number {
    return this.#busy;
  }

  /**
   * Works until it is stopped, and resolves when everything is reported. Rejects with an
   * `EgretError` when Egret refuses the worker, for example because of its token. A lost connection
   * is no error: the worker connects again.
   */
  async run(): Promise<void> {
    if (this.#started) {
      throw new Error("a worker runs once");
    }
    this.#started = true;
    const stop = () => this.stop();
    const interrupted = () => this.#signal();
    const { signal, signals } = this.#options;
    signal?.addEventListener("abort", stop);
    if (signals) {
      process.on("SIGINT", interrupted).on("SIGTERM", interrupted);
    }
    if (signal?.aborted || this.#stopping) {
      this.#stopping = false;
      this.stop();
    }
    this.#beat();
    try {
      await this.#drive();
    } finally {
      this.#ended = true;
      clearTimeout(this.#beatTimer);
      for (const timer of this.#timers) {
        clearTimeout(timer);
      }
      signal?.removeEventListener("abort", stop);
      process.off("SIGINT", interrupted).off("SIGTERM", interrupted);
    }
  }

  /**
   * Takes no more tasks, lets those that run finish within the grace time, gives the others back,
   * waits until Egret has acknowledged every report, and ends `run`.
   */
  stop(): void {
    if (this.#stopping) {
      return;
    }
    this.#stopping = true;
    if (this.#started && !this.#ended) {
      this.#after(this.#running.size > 0 ? this.#graceMs : 0, () => this.#cutShort());
    }
    this.#wakeup.ring();
  }

  /** The first signal stops gracefully, the second one at once. */
  #signal(): void {
    if (this.#signalled) {
      this.#cutShort();
    } else {
      this.#signalled = true;
      this.stop();
    }
  }

  /** Gives running tasks back: the grace time is over, or a second signal has ended it. */
  #cutShort(): void {
    for (const running of [...this.#running.values()]) {
      this.#interrupt(running, "the worker stops");
      this.#report(running.id, { lease: running.lease, release: {} });
    }
    this.#after(GOODBYE_MS, () => {
      this.#abandoned = true;
      this.#wakeup.ring();
      // A write to a server that reads nothing would not end.
      this.#after(GOODBYE_MS, () => this.#stream?.cancel());
    });
  }

  #after(delayMs: number, then: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      then();
    }, delayMs);
    this.#timers.add(timer);
  }

  #warn(message: string, error?: unknown): void {
    try {
      this.#options.onWarning?.(message, error);
    } catch (fault) {
      // No task may hang because it could not be told of.
      process.emitWarning(`onWarning has failed: ${textOf(fault)}`);
    }
  }

  // ---- Handlers. ----

  #start(assignment: pb.Assignment, nowMs: number): void {
    const { id, lease } = assignment;
    if (this.#stopping) {
      // Pushed before Egret had heard of the stop.
      this.#report(id, { lease, release: {} });
      return;
    }
    const key = lease.toString("latin1");
    const leaseMs = Math.max(assignment.leaseMs, LEASE_MS_LEAST);
    const held = { beatAtMs: nowMs, beatWaits: false, heldAtMs: nowMs, overdue: false, over: false };
    const running: Running = { ...held, id, lease, key, task: new Task(assignment), leaseMs };
    this.#running.set(key, running);
    if (leaseMs < this.#paceMs) {
      this.#pace(leaseMs);
    }
    this.#busy += 1;
    void this.#handle(running);
  }

  async #handle(running: Running): Promise<void> {
    const { id, lease, task } = running;
    let report: pb.TaskReport;
    try {
      const { data, format } = encode(await this.#handler(task));
      if (data.length > RESULT_BYTES_MAX) {
        throw new RangeError(`the result has ${data.length} bytes, more than a message takes`);
      }
      report = { lease, completed: { result: data, format, attachments: [] } };
    } catch (error) {
      report = this.#failure(running, error);
    }
    // Not before: a handler that was told to end may take its time, and is one of so many until then.
    this.#busy -= 1;
    this.#credits += 1;
    if (!running.over) {
      this.#finish(running);
      this.#report(id, report);
    }
    this.#wakeup.ring();
  }

  #failure({ id, lease, task, over }: Running, error: unknown): pb.TaskReport {
    if (error instanceof Snooze) {
      return { lease, snooze: { delayMs: error.delayMs } };
    }
    if (error instanceof Retry) {
      return { lease, nack: { delayMs: error.delayMs, reason: cut(error.reason) } };
    }
    const permanent = error instanceof PermanentError;
    if (!over) {
      this.#warn(`attempt ${task.attempt} of task ${id} failed`, error);
    }
    return { lease, failed: { error: cut(textOf(error)), permanent } };
  }

  #finish(running: Running): void {
    running.over = true;
    this.#running.delete(running.key);
  }

  /** The handler goes on, as nothing can end it, but what it returns no longer matters. */
  #interrupt(running: Running, reason: string): void {
    this.#finish(running);
    running.task.abort(new Error(reason));
    this.#wakeup.ring();
  }

  #lost(running: Running | undefined, reason: string): void {
    if (running !== undefined && !running.over) {
      this.#warn(`the lease of task ${running.id} is lost: ${reason}`);
      this.#interrupt(running, reason);
    }
  }

  #report(id: string, message: pb.TaskReport): void {
    this.#waiting.push({ id, message, tries: 0, again: false });
    this.#wakeup.ring();
  }

  // ---- What Egret says. ----

  #take(response: pb.WorkResponse): void {
    const nowMs = performance.now();
    for (const assignment of response.tasks) {
      this.#start(assignment, nowMs);
    }
    const before = this.#sent.size;
    for (const number of response.accepted) {
      const report = this.#sent.get(number);
      this.#sent.delete(number);
      if (report !== undefined && "task" in report) {
        report.heldAtMs = nowMs;
        report.overdue = false;
      } else if (report?.message.completed !== undefined) {
        this.completed += 1;
      }
    }
    for (const { number, error } of response.refused) {
      const report = this.#sent.get(number);
      this.#sent.delete(number);
      if (report !== undefined && error !== undefined) {
        this.#refused(report, error);
      }
    }
    for (const { lease, reason } of response.lost) {
      this.#lost(this.#running.get(lease.toString("latin1")), reason);
    }
    if (response.welcome !== undefined) {
      this.#backoff.reset();
    }
    if (response.drained) {
      this.#hasCredits = false;
    }
    if (this.#stopping || (before >= UNACKNOWLEDGED_MAX && this.#sent.size < UNACKNOWLEDGED_MAX)) {
      this.#wakeup.ring();
    }
  }

  #refused(report: Report | Running, error: pb.Error): void {
    if ("task" in report) {
      if (error.code === "lease_lost") {
        this.#lost(report, error.message);
      }
      return;
    }
    const { id, message } = report;
    if (error.code === "lease_lost") {
      // One that is sent again may have been taken the first time, with the answer lost.
      if (!report.again) {
        this.#warn(`the report on task ${id} came too late: ${error.message}`);
      }
    } else if (error.retryable) {
      const delayMs = Math.min(REPORT_DELAY_MS * 2 ** report.tries, REPORT_DELAY_LONGEST_MS);
      report.tries += 1;
      this.#later += 1;
      this.#after(delayMs, () => {
        this.#later -= 1;
        this.#waiting.push(report);
        this.#wakeup.ring();
      });
    } else if (message.completed !== undefined) {
      // A result that is too large, for one: the attempt must not hang until its lease ends.
      const text = `the result was refused: ${error.code}: ${error.message}`;
      this.#warn(`task ${id}: ${text}`);
      this.#report(id, { lease: message.lease, failed: { error: cut(text), permanent: false } });
    } else {
      this.#warn(`a report on task ${id} was refused: ${error.code}: ${error.message}`);
    }
  }

  // ---- The stream. ----

  async #drive(): Promise<void> {
    try {
      while (!this.#done()) {
        if (!(await this.#connection.ready(() => !this.#done()))) {
          if (this.#done()) {
            return;
          }
          throw closed();
        }
        const error = await this.#converse();
        if (error === undefined) {
          return;
        }
        if (!error.retryable) {
          throw error;
        }
        this.#warn("lost the connection to the server; reconnecting", error);
        const endMs = performance.now() + this.#backoff.delayMs();
        for (let leftMs = 1; leftMs > 0 && !this.#done(); leftMs = endMs - performance.now()) {
          await this.#wakeup.wait(endMs - performance.now());
        }
      }
    } finally {
      for (const running of [...this.#running.values()]) {
        this.#interrupt(running, "the worker has ended");
      }
      const left = this.#waiting.length + this.#sent.size;
      if (left > 0) {
        this.#warn(`${left} reports were not acknowledged before the worker ended`);
      }
    }
  }

  #done(): boolean {
    const pending = this.#running.size + this.#waiting.length + this.#sent.size + this.#later;
    return this.#abandoned || (this.#stopping && pending === 0 && !this.#hasCredits);
  }

  /** One stream from its beginning to its end; why it ended unless it was this worker. */
  async #converse(): Promise<EgretError | undefined> {
    const { client, metadata } = this.#connection;
    const stream = new Duplex(client.work(metadata), (response: pb.WorkResponse) => this.#take(response));
    void stream.end.then(() => this.#wakeup.ring());
    this.#stream = stream;
    try {
      return await this.#speak(stream);
    } finally {
      // The stream is not read any more, however it ended.
      stream.cancel();
      this.#stream = undefined;
    }
  }

  async #speak(stream: Duplex<pb.WorkRequest, pb.WorkResponse>): Promise<EgretError | undefined> {
    this.#begin();
    let message: pb.WorkRequest | undefined = this.#pack(this.#hello);
    while (!stream.ended) {
      if (message !== undefined) {
        this.messagesSent += 1;
        await stream.write(message);
      } else if (this.#done()) {
        await stream.close();
        return undefined;
      } else {
        await this.#wakeup.wait();
        await turn();
      }
      message = this.#next();
    }
    this.#hasCredits = false;
    return this.#abandoned ? undefined : ofStatus(await stream.end);
  }

  /** What an earlier stream left unacknowledged goes over the new one, which counts anew. */
  #begin(): void {
    const unacknowledged = [...this.#sent.values()].filter((report): report is Report => "message" in report);
    for (const report of unacknowledged) {
      report.again = true;
    }
    this.#sent.clear();
    this.#number = 0;
    this.#waiting = [...unacknowledged, ...this.#waiting];
    this.#credits = this.#concurrency - this.#busy;
    this.#drainSent = false;
    this.#beats = [...this.#running.values()];
    for (const running of this.#beats) {
      running.beatWaits = true;
    }
  }

  #next(): pb.WorkRequest | undefined {
    const due = this.#waiting.length + this.#beats.length + this.#creditsDue();
    return due > 0 || this.#drainDue() ? this.#pack(undefined) : undefined;
  }

  #creditsDue(): number {
    return this.#stopping || this.#sent.size + this.#later >= UNACKNOWLEDGED_MAX ? 0 : this.#credits;
  }

  #drainDue(): boolean {
    return this.#stopping && this.#hasCredits && !this.#drainSent;
  }

  #pack(hello: pb.Hello | undefined): pb.WorkRequest {
    const credits = this.#creditsDue();
    this.#credits -= credits;
    this.#hasCredits ||= credits > 0;
    const drain = this.#drainDue();
    this.#drainSent ||= drain;
    const reports: pb.TaskReport[] = [];
    for (const running of this.#beats.splice(0, MESSAGE_REPORTS_MAX)) {
      running.beatWaits = false;
      if (!running.over) {
        this.#sent.set(this.#number++, running);
        // What the queue says may have changed since, and the pace is made for this lease.
        reports.push({ lease: running.lease, heartbeat: { leaseMs: running.leaseMs } });
        this.heartbeatsSent += 1;
      }
    }
    let packed = 0;
    let sizeBytes = 0;
    for (const report of this.#waiting) {
      if (reports.length >= MESSAGE_REPORTS_MAX || sizeBytes >= MESSAGE_BYTES_MAX) {
        break;
      }
      this.#sent.set(this.#number++, report);
      reports.push(report.message);
      sizeBytes += sizeOf(report.message);
      packed += 1;
    }
    this.#waiting = packed === this.#waiting.length ? [] : this.#waiting.slice(packed);
    return { hello, credits, reports, drain };
  }

  // ---- Heartbeats. ----

  /** Puts tasks up for a heartbeat before a third of their lease has passed. */
  #beat(): void {
    const nowMs = performance.now();
    let paceMs = LEASE_MS_IDLE;
    for (const running of [...this.#running.values()]) {
      if (nowMs - running.heldAtMs < running.leaseMs) {
        running.overdue = false;
      } else if (running.overdue) {
        // The answer had the time since the last look to be read, had it come.
        this.#lost(running, `egret has acknowledged no heartbeat for ${running.leaseMs} ms`);
        continue;
      } else {
        running.overdue = true;
      }
      paceMs = Math.min(paceMs, running.leaseMs);
      // What is left for the next look must not be older than a third of its lease by then.
      if (nowMs - running.beatAtMs >= running.leaseMs / 4) {
        running.beatAtMs = nowMs;
        // One is enough, however long nothing can be sent.
        if (!running.beatWaits) {
          running.beatWaits = true;
          this.#beats.push(running);
        }
      }
    }
    if (this.#beats.length > 0) {
      this.#wakeup.ring();
    }
    this.#pace(paceMs);
  }

  /** The next look is in time for a lease that lasts so long, and then the others are too. */
  #pace(leaseMs: number): void {
    this.#paceMs = leaseMs;
    clearTimeout(this.#beatTimer);
    this.#beatTimer = setTimeout(() => this.#beat(), leaseMs / 12);
  }
}
