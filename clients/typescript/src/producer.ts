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

/** A task whose outcome somebody waits for. */
interface Entry {
  queue: string;
  task: pb.NewTask;
  sizeBytes: number;
  resolve: (outcome: Enqueued) => void;
  reject: (error: EgretError) => void;
  /** It was sent over a stream that ended before the outcome came. */
  maybeEnqueued: boolean;
}

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
    const sizeBytes = estimate(task);
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
      this.#waiting.push({ queue, task, sizeBytes, resolve, reject, maybeEnqueued: false });
      this.#driver ??= this.#run();
      this.#wakeup.ring();
    });
  }

  /** A message larger than the server takes ends the stream, for everybody who uses it. */
  async #alone(queue: string, task: pb.NewTask): Promise<Enqueued> {
    const [outcome] = await enqueueMany(this.#connection, { queue, tasks: [task] });
    if (outcome === undefined || outcome instanceof EgretError) {
      throw outcome ?? new EgretError("internal", "egret answered without an outcome");
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
      // Counted here, so that nobody takes the room before its owner has run.
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
    entry.reject(error);
  }

  #take(response: pb.ProduceResponse): void {
    this.#heard = true;
    this.#stuckSinceMs = undefined;
    this.#backoff.reset();
    for (const outcome of response.outcomes) {
      const entry = this.#sent.get(outcome.number);
      // What is refused by an Egret that stops goes to the one that comes back, once the stream has ended.
      if (entry === undefined || outcome.error?.code === STOPPING) {
        continue;
      }
      this.#sent.delete(outcome.number);
      if (outcome.error === undefined) {
        this.#leave(entry.sizeBytes);
        entry.resolve({ id: outcome.id, replayed: outcome.replayed });
      } else {
        this.#refuse(entry, ofItem(outcome.error));
      }
    }
    if (this.#closing) {
      this.#wakeup.ring();
    }
  }

  // ---- The stream. ----

  async #run(): Promise<void> {
    try {
      await this.#drive();
    } finally {
      // Nobody is left to answer: no caller may wait for ever.
      this.#after(closed());
      this.#driver = undefined;
    }
  }

  async #drive(): Promise<void> {
    for (;;) {
      while (this.#waiting.length === 0) {
        if (this.#closing) {
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
      const error = await this.#stream();
      if (error !== undefined) {
        this.#after(error);
        await sleep(this.#backoff.delayMs());
      }
    }
  }

  /** One stream from its beginning to its end; why it ended unless it was this client. */
  async #stream(): Promise<EgretError | undefined> {
    const { client, metadata } = this.#connection;
    const stream = new Duplex(client.produce(metadata), (response: pb.ProduceResponse) => this.#take(response));
    void stream.end.then(() => this.#wakeup.ring());
    this.#heard = false;
    let number = 0;
    // A task that is written to a stream that is refused or never comes to be could not be told from
    // one that was lost on the way.
    await stream.opened;
    while (!stream.ended) {
      if (this.#waiting.length > 0) {
        await turn();
        const message = this.#pack(number);
        number += message.tasks.length;
        this.messagesSent += 1;
        await stream.write(message);
      } else if (this.#closing && this.#sent.size === 0) {
        stream.close();
        await stream.end;
        return undefined;
      } else {
        await this.#wakeup.wait();
      }
    }
    return ofStatus(await stream.end);
  }

  #pack(first: number): pb.ProduceRequest {
    const waiting = this.#waiting;
    const queue = waiting[0]?.queue ?? "";
    const tasks: pb.NewTask[] = [];
    let sizeBytes = 0;
    for (const entry of waiting) {
      if (tasks.length >= MESSAGE_TASKS_MAX || sizeBytes >= MESSAGE_BYTES_MAX) {
        break;
      }
      if (entry.queue !== queue) {
        entry.task.queue = entry.queue;
      }
      this.#sent.set(first + tasks.length, entry);
      tasks.push(entry.task);
      sizeBytes += entry.sizeBytes;
    }
    this.#waiting = tasks.length === waiting.length ? [] : waiting.slice(tasks.length);
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
      } else if (unseen || entry.task.uniqueKey !== "") {
        entry.maybeEnqueued ||= !unseen;
        again.push(entry);
      } else {
        this.#refuse(entry, new UnknownOutcome(error));
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
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const entry of waiting) {
      this.#refuse(entry, entry.maybeEnqueued ? new UnknownOutcome(error) : error);
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

/** About how many bytes a task has on the wire, without encoding it. */
function estimate(task: pb.NewTask): number {
  let sizeBytes = 64 + task.payload.length;
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
    const certain = keyed || toldCode(status) !== undefined || SAYS_NO.has(status.code);
    throw certain ? cause : new UnknownOutcome(cause);
  }
  return response.outcomes.map((outcome) =>
    outcome.error === undefined ? { id: outcome.id, replayed: outcome.replayed } : ofItem(outcome.error),
  );
}
