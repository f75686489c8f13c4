/**
 * Enqueueing over one stream, with everything that waits packed into one message.
 *
 * No timer holds a task back: whenever the stream can be written to, what waits then is sent. One
 * caller alone therefore pays no delay, and many callers share the cost of a message.
 */

import { status as Status } from "@grpc/grpc-js";

import { Backoff, type Connection, Wakeup, closed, sleep, turn } from "./connection.js";
import { Duplex } from "./duplex.js";
import {
  Denied,
  EgretError,
  type Ended,
  Unauthenticated,
  Unavailable,
  UnknownOutcome,
  ofItem,
  ofStatus,
  ofThrown,
  toldCode,
} from "./errors.js";
import type * as pb from "./generated/queue.js";
import type { Enqueued } from "./model.js";

/** Most tasks in one message. */
const MESSAGE_TASKS_MAX = 1_000;
/** A message that has reached so many bytes takes no further task. */
const MESSAGE_BYTES_MAX = 1 << 20;

/** The code of what Egret does not take in any more because it stops. */
const STOPPING = "stopping";
/** Codes of tasks that were not taken and may be after a while, perhaps by another partition. */
const NOT_NOW = new Set([STOPPING, "queue_partition_failed"]);
/** At most one of so many places is for tasks that are sent again later, so that others find room. */
const LATER_SHARE = 4;
/** A task in doubt is sent again in this part of its unique window; the rest is for the way. */
const WINDOW_SHARE = 0.9;

// Statuses that a server or a proxy gives before it has done anything.
const SAYS_NO = new Set<Status>([
  Status.UNAUTHENTICATED,
  Status.PERMISSION_DENIED,
  Status.INVALID_ARGUMENT,
  Status.OUT_OF_RANGE,
  Status.NOT_FOUND,
  Status.RESOURCE_EXHAUSTED,
  Status.UNIMPLEMENTED,
]);

/** A task whose outcome a caller waits for. */
interface Entry {
  queue: string;
  task: pb.NewTask;
  sizeBytes: number;
  resolve: (outcome: Enqueued) => void;
  reject: (error: EgretError) => void;
  /** What ended the stream over which it was sent, before the outcome came. */
  doubt: EgretError | undefined;
  /** How long its unique key is remembered; as its queue says when left out. */
  windowMs: number | undefined;
  /** When it was first sent, and when it was first refused for the moment. */
  sentAtMs: number | undefined;
  refusedAtMs: number | undefined;
  tries: number;
}

type Stream = Duplex<pb.ProduceRequest, pb.ProduceResponse>;

export interface ProducerOptions {
  tasksMax: number;
  bytesMax: number;
  patienceMs: number;
}

export class Producer {
  readonly #connection: Connection;
  readonly #options: ProducerOptions;
  #tasks = 0;
  #bytes = 0;
  #blocked: Array<{ sizeBytes: number; enter: () => void }> = [];
  #waiting: Entry[] = [];
  #sent = new Map<number, Entry>();
  /** Refused for the moment, each until its timer puts it among those that wait. */
  readonly #later = new Set<Entry>();
  #laterBytes = 0;
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #wakeup = new Wakeup();
  readonly #backoff = new Backoff();
  #driver: Promise<void> | undefined;
  #closing = false;
  /** The moment since when nothing has succeeded although something waits. */
  #stuckSinceMs: number | undefined;
  #heard = false;
  messagesSent = 0;

  constructor(connection: Connection, options: ProducerOptions) {
    this.#connection = connection;
    this.#options = options;
  }

  async enqueue(queue: string, task: pb.NewTask): Promise<Enqueued> {
    if (this.#closing) {
      throw closed();
    }
    const sizeBytes = estimate(queue, task);
    if (sizeBytes > MESSAGE_BYTES_MAX) {
      return this.#alone(queue, task);
    }
    if (this.#blocked.length > 0 || this.#full(sizeBytes)) {
      await new Promise<void>((enter) => this.#blocked.push({ sizeBytes, enter }));
      if (this.#closing) {
        this.#leave(sizeBytes);
        throw closed();
      }
    } else {
      this.#enter(sizeBytes);
    }
    return new Promise((resolve, reject) => {
      const windowMs = task.uniqueWindowMs || undefined;
      const times = { windowMs, sentAtMs: undefined, refusedAtMs: undefined, tries: 0 };
      this.#waiting.push({ queue, task, sizeBytes, resolve, reject, doubt: undefined, ...times });
      this.#driver ??= this.#run();
      this.#wakeup.ring();
    });
  }

  /** A message larger than the server takes ends the stream, for everybody who uses it. */
  async #alone(queue: string, task: pb.NewTask): Promise<Enqueued> {
    const [outcome] = await enqueueMany(this.#connection, { queue, tasks: [task], atomic: false });
    if (outcome === undefined || outcome instanceof EgretError) {
      throw outcome ?? new EgretError("internal", "the response of egret has no outcome");
    }
    return outcome;
  }

  // ---- Room: what waits is bounded, and who comes first is served first. ----

  #full(sizeBytes: number): boolean {
    const { tasksMax, bytesMax } = this.#options;
    return this.#tasks >= tasksMax || (this.#tasks > 0 && this.#bytes + sizeBytes > bytesMax);
  }

  #enter(sizeBytes: number): void {
    this.#tasks += 1;
    this.#bytes += sizeBytes;
  }

  #leave(sizeBytes: number): void {
    this.#tasks -= 1;
    this.#bytes -= sizeBytes;
    let admitted = 0;
    for (const next of this.#blocked) {
      if (this.#full(next.sizeBytes)) {
        break;
      }
      // Counted here, so that no other caller takes the room before its owner has run.
      this.#enter(next.sizeBytes);
      next.enter();
      admitted += 1;
    }
    if (admitted > 0) {
      this.#blocked.splice(0, admitted);
    }
  }

  // ---- Outcomes. ----

  #refuse(entry: Entry, error: EgretError): void {
    this.#leave(entry.sizeBytes);
    // Whatever is said of it now, it may have been enqueued before.
    const certain = entry.doubt === undefined || error instanceof UnknownOutcome;
    entry.reject(certain ? error : new UnknownOutcome(error));
  }

  #take(response: pb.ProduceResponse): void {
    this.#heard = true;
    this.#stuckSinceMs = undefined;
    this.#backoff.reset();
    const notNow: Array<[Entry, pb.Error]> = [];
    for (const outcome of response.outcomes) {
      const entry = this.#sent.get(outcome.number);
      if (entry === undefined) {
        continue;
      }
      this.#sent.delete(outcome.number);
      if (outcome.error === undefined) {
        this.#leave(entry.sizeBytes);
        entry.resolve({ id: outcome.id, replayed: outcome.replayed });
      } else if (NOT_NOW.has(outcome.error.code)) {
        notNow.push([entry, outcome.error]);
      } else {
        this.#refuse(entry, ofItem(outcome.error));
      }
    }
    this.#putOff(notNow);
    if (this.#closing) {
      this.#wakeup.ring();
    }
  }

  // ---- What Egret does not take for the moment. ----

  /** Sends tasks again after a while, as long as their callers are patient. */
  #putOff(refused: ReadonlyArray<[Entry, pb.Error]>): void {
    const { tasksMax, bytesMax, patienceMs } = this.#options;
    const nowMs = performance.now();
    const due = new Map<number, Entry[]>();
    for (const [entry, error] of refused) {
      entry.refusedAtMs ??= nowMs;
      const full = this.#later.size * LATER_SHARE >= tasksMax || this.#laterBytes * LATER_SHARE >= bytesMax;
      if (full || nowMs - entry.refusedAtMs >= patienceMs) {
        this.#refuse(entry, ofItem(error));
        continue;
      }
      this.#later.add(entry);
      this.#laterBytes += entry.sizeBytes;
      const others = due.get(entry.tries);
      if (others === undefined) {
        due.set(entry.tries, [entry]);
      } else {
        others.push(entry);
      }
      entry.tries += 1;
    }
    for (const [tries, entries] of due) {
      const since = Math.min(...entries.map((entry) => entry.refusedAtMs ?? nowMs));
      const delayMs = Math.min(Backoff.delayMs(tries), since + patienceMs - nowMs);
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        this.#again(entries);
      }, Math.max(delayMs, 1));
      this.#timers.add(timer);
    }
  }

  #again(entries: readonly Entry[]): void {
    for (const entry of entries) {
      if (this.#later.delete(entry)) {
        this.#laterBytes -= entry.sizeBytes;
        this.#waiting.push(entry);
      }
    }
    this.#wakeup.ring();
  }

  // ---- The stream. ----

  async #run(): Promise<void> {
    let ended = closed();
    try {
      await this.#drive();
    } catch (error) {
      ended = ofThrown(error);
    } finally {
      // No answer can come any more: fail the waiting callers.
      this.#after(ended);
      this.#driver = undefined;
    }
  }

  async #drive(): Promise<void> {
    for (;;) {
      while (this.#waiting.length === 0) {
        if (this.#closing && this.#later.size === 0) {
          return;
        }
        await this.#wakeup.wait();
      }
      const since = (this.#stuckSinceMs ??= performance.now());
      const patient = () => performance.now() < since + this.#options.patienceMs;
      if (!patient() || !(await this.#connection.ready(patient))) {
        this.#giveUp();
        continue;
      }
      const leftMs = since + this.#options.patienceMs - performance.now();
      const error = (await this.#learnWindows(leftMs)) ?? (await this.#stream());
      if (error !== undefined) {
        this.#after(error);
        await sleep(this.#backoff.delayMs());
      }
    }
  }

  /** Asks how long the unique keys of tasks in doubt are remembered, where none of them says. */
  async #learnWindows(leftMs: number): Promise<EgretError | undefined> {
    const { client, callTimeoutMs } = this.#connection;
    const unknown = [...this.#waiting, ...this.#later].filter(
      (entry) => entry.doubt !== undefined && entry.windowMs === undefined,
    );
    for (const name of new Set(unknown.map((entry) => entry.queue))) {
      let windowMs = 0;
      try {
        const timeoutMs = Math.max(Math.min(leftMs, callTimeoutMs), 1);
        const info = await this.#connection.call(client.getQueue, { name }, timeoutMs);
        windowMs = info.settings?.uniqueWindowMs ?? 0;
      } catch (error) {
        const cause = ofThrown(error);
        if (cause.retryable) {
          return cause;
        }
        // Egret does not tell, for one to a token without `queue:read`.
      }
      for (const entry of unknown) {
        if (entry.queue === name) {
          entry.windowMs = windowMs;
        }
      }
    }
    return undefined;
  }

  /** One stream from its beginning to its end; why it ended unless it was this client. */
  async #stream(): Promise<EgretError | undefined> {
    const { client, metadata } = this.#connection;
    const take = (response: pb.ProduceResponse) => this.#take(response);
    const stream: Stream = new Duplex(client.produce(metadata), take);
    void stream.end.then(() => this.#wakeup.ring());
    try {
      return await this.#speak(stream);
    } finally {
      // The stream is not read any more, however it ended.
      stream.cancel();
    }
  }

  async #speak(stream: Stream): Promise<EgretError | undefined> {
    this.#heard = false;
    let number = 0;
    // A task that is written to a stream that is refused or never comes to be could not be told from
    // one that was lost on the way.
    await stream.opened;
    while (!stream.ended) {
      if (this.#waiting.length > 0) {
        await turn();
        const message = this.#pack(number);
        if (message.tasks.length > 0) {
          number += message.tasks.length;
          this.messagesSent += 1;
          await stream.write(message);
        }
      } else if (this.#closing && this.#sent.size === 0 && this.#later.size === 0) {
        await stream.close();
        return undefined;
      } else {
        await this.#wakeup.wait();
      }
    }
    return ofStatus(await stream.end);
  }

  #pack(first: number): pb.ProduceRequest {
    const waiting = this.#waiting;
    const nowMs = performance.now();
    const tasks: pb.NewTask[] = [];
    const late: Array<[Entry, EgretError]> = [];
    let queue = "";
    let sizeBytes = 0;
    let taken = 0;
    for (const entry of waiting) {
      if (tasks.length >= MESSAGE_TASKS_MAX || sizeBytes >= MESSAGE_BYTES_MAX) {
        break;
      }
      taken += 1;
      entry.sentAtMs ??= nowMs;
      if (entry.doubt !== undefined && nowMs - entry.sentAtMs >= (entry.windowMs ?? 0) * WINDOW_SHARE) {
        // Its key may be forgotten, and it would be enqueued twice.
        late.push([entry, tooLate(entry.doubt, entry.windowMs)]);
        continue;
      }
      if (tasks.length === 0) {
        queue = entry.queue;
      } else if (entry.queue !== queue) {
        entry.task.queue = entry.queue;
      }
      this.#sent.set(first + tasks.length, entry);
      tasks.push(entry.task);
      sizeBytes += entry.sizeBytes;
    }
    this.#waiting = taken === waiting.length ? [] : waiting.slice(taken);
    for (const [entry, error] of late) {
      this.#refuse(entry, error);
    }
    return { queue, tasks };
  }

  /** What becomes of the tasks of a stream that has ended. */
  #after(error: EgretError): void {
    const refused = !this.#heard && (error instanceof Unauthenticated || error instanceof Denied);
    // An Egret that stops answers what it has received, and ends the stream then.
    const unseen = error.code === STOPPING;
    const again: Entry[] = [];
    const sent = this.#sent;
    this.#sent = new Map();
    for (const entry of sent.values()) {
      if (refused) {
        this.#refuse(entry, error);
        continue;
      }
      if (!unseen) {
        entry.doubt = error;
      }
      if (unseen || entry.task.uniqueKey !== "") {
        again.push(entry);
      } else {
        this.#refuse(entry, error);
      }
    }
    this.#waiting = [...again, ...this.#waiting];
    if (!error.retryable) {
      this.#refuseWaiting(error);
    }
  }

  #giveUp(): void {
    this.#stuckSinceMs = undefined;
    const message = `egret could not be reached within ${this.#options.patienceMs} ms`;
    this.#refuseWaiting(new Unavailable("unreachable", message, { retryable: true }));
  }

  #refuseWaiting(error: EgretError): void {
    const left = [...this.#waiting, ...this.#later];
    this.#waiting = [];
    this.#later.clear();
    this.#laterBytes = 0;
    // Their entries are gone, and a program need not wait for them to end.
    this.#timers.forEach(clearTimeout);
    this.#timers.clear();
    for (const entry of left) {
      this.#refuse(entry, error);
    }
  }

  /** Waits for the outcomes of what was enqueued, then ends the stream. */
  async close(): Promise<void> {
    this.#closing = true;
    for (const { sizeBytes, enter } of this.#blocked.splice(0)) {
      this.#enter(sizeBytes);
      enter();
    }
    this.#wakeup.ring();
    await this.#driver;
  }
}

function tooLate(cause: EgretError, windowMs: number | undefined): UnknownOutcome {
  const told = windowMs ? `is remembered for ${windowMs} ms only` : "may be forgotten";
  return new UnknownOutcome(cause, { why: `, and it is not sent again as its unique key ${told}` });
}

/** About how many bytes a task has on the wire, without encoding it. */
function estimate(queue: string, task: pb.NewTask): number {
  let sizeBytes = 64 + task.payload.length + queue.length + task.traceparent.length + task.tracestate.length;
  sizeBytes += task.orderingKey.length + task.uniqueKey.length + task.callbackUrl.length;
  for (const text of task.tags) {
    sizeBytes += 4 + text.length;
  }
  for (const text of task.after) {
    sizeBytes += 4 + text.length;
  }
  for (const key in task.metadata) {
    sizeBytes += 8 + key.length + (task.metadata[key]?.length ?? 0);
  }
  return sizeBytes;
}

/** Sends tasks by a call of their own; an outcome for each. */
export async function enqueueMany(
  connection: Connection,
  request: pb.EnqueueRequest,
): Promise<Array<Enqueued | EgretError>> {
  let response: pb.EnqueueResponse;
  try {
    response = await connection.rawCall(connection.client.enqueue, request);
  } catch (error) {
    if (error instanceof EgretError) {
      throw error;
    }
    const status = error as Ended;
    const cause = ofStatus(status);
    const keyed = request.tasks.every((task) => task.uniqueKey !== "");
    const certain = toldCode(status) !== undefined || SAYS_NO.has(status.code);
    throw certain ? cause : new UnknownOutcome(cause, { retryable: keyed });
  }
  return response.outcomes.map((outcome) =>
    outcome.error === undefined ? { id: outcome.id, replayed: outcome.replayed } : ofItem(outcome.error),
  );
}
