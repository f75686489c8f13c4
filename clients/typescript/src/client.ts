/** The client: queues, tasks, schedules and workers of one Egret. */

import type { ClientReadableStream } from "@grpc/grpc-js";

import { Backoff, Connection, sleep } from "./connection.js";
import {
  EgretError,
  EnqueueRefused,
  TaskCancelled,
  TaskFailed,
  TimedOut,
  ofThrown,
} from "./errors.js";
import * as pb from "./generated/queue.js";
import {
  type Enqueued,
  type NewTask,
  type QueueInfo,
  type QueueSettings,
  type ScheduleInfo,
  type ScheduleOptions,
  type State,
  type TaskChange,
  TaskInfo,
  type TaskOptions,
  changeOf,
  newTask,
  queueOf,
  scheduleMessage,
  scheduleOf,
  settingsMessage,
  stateNumber,
} from "./model.js";
import { checkNames, count, names, text } from "./payload.js";
import { Producer, enqueueMany } from "./producer.js";
import type { Handler } from "./task.js";
import { Waiter } from "./waiter.js";
import { type WorkOptions, Worker } from "./worker.js";

export interface ClientOptions {
  /** How long a single call may take; 30,000. */
  callTimeoutMs?: number;
  /** How long tasks wait while Egret cannot be reached, before they fail with `Unavailable`; 60,000. */
  patienceMs?: number;
  /** So many tasks may be enqueued and not yet acknowledged, then `enqueue` waits; 10,000. */
  waitingTasksMax?: number;
  /** The same in bytes; 64 MiB. */
  waitingBytesMax?: number;
  /** PEM certificates that an `https` server is checked with, instead of those of Node. */
  rootCertificates?: Buffer;
}

const CLIENT_OPTIONS = names<ClientOptions>({
  callTimeoutMs: true,
  patienceMs: true,
  waitingTasksMax: true,
  waitingBytesMax: true,
  rootCertificates: true,
});

/** One Egret, with one connection and one stream of tasks for everybody who enqueues. */
export class Client {
  readonly #connection: Connection;
  readonly #producer: Producer;
  readonly #waiter: Waiter;

  /** `url` is like `http://127.0.0.1:7070` or `https://host`. */
  constructor(url: string, token: string, options: ClientOptions = {}) {
    checkNames(options, CLIENT_OPTIONS, "a client");
    this.#connection = new Connection(url, token, {
      callTimeoutMs: options.callTimeoutMs ?? 30_000,
      rootCertificates: options.rootCertificates,
    });
    this.#producer = new Producer(this.#connection, {
      tasksMax: options.waitingTasksMax ?? 10_000,
      bytesMax: options.waitingBytesMax ?? 64 << 20,
      patienceMs: options.patienceMs ?? 60_000,
    });
    this.#waiter = new Waiter(this.#connection);
  }

  /** Waits for the outcomes of what was enqueued, then closes the connection. */
  async close(): Promise<void> {
    await this.#producer.close();
    await this.#waiter.close();
    this.#connection.close();
  }

  /** Messages that the tasks enqueued so far were packed into. */
  get produceMessagesSent(): number {
    return this.#producer.messagesSent;
  }

  // ---- Working. ----

  /**
   * Runs `handler` for each task until it is stopped by `options.signal` or, with `options.signals`,
   * by SIGINT or SIGTERM; the second one gives back at once what still runs. See `worker`.
   */
  async work<Payload = any>(
    queues: string | readonly string[],
    handler: Handler<Payload>,
    options: WorkOptions = {},
  ): Promise<void> {
    await this.worker(queues, handler, options).run();
  }

  /**
   * A worker, to be run by `run` and stopped by `stop`.
   *
   * What the handler returns is the task's result; what it throws decides what becomes of the task:
   * `PermanentError`, `Retry` and `Snooze`, anything else is a failure and tried again as the queue
   * says. `task.signal` is aborted when the lease is lost. Heartbeats need the event loop: work that
   * blocks it for a third of the lease belongs in a worker thread.
   */
  worker<Payload = any>(
    queues: string | readonly string[],
    handler: Handler<Payload>,
    options: WorkOptions = {},
  ): Worker {
    const names = typeof queues === "string" ? [queues] : queues;
    return new Worker(this.#connection, names, handler as Handler, options);
  }

  // ---- Tasks. ----

  /** A task with its attempts; with `brief` without payload and result. */
  async get(id: string, options: { brief?: boolean } = {}): Promise<TaskInfo> {
    const { client } = this.#connection;
    return new TaskInfo(await this.#connection.call(client.getTask, { id, brief: options.brief ?? false }));
  }

  /**
   * Waits until a task has ended, and returns it. Rejects with `TimedOut` after `timeoutMs`; without
   * one it waits as long as it takes, and through times when Egret cannot be reached.
   */
  async wait(id: string, options: { timeoutMs?: number } = {}): Promise<TaskInfo> {
    const { timeoutMs } = options;
    const endMs = timeoutMs === undefined ? Infinity : performance.now() + timeoutMs;
    const backoff = new Backoff();
    while (performance.now() < endMs) {
      try {
        const leftMs = timeoutMs === undefined ? undefined : endMs - performance.now();
        const message = await this.#waiter.wait(id, leftMs);
        if (message) {
          return new TaskInfo(message);
        }
        break;
      } catch (error) {
        if (!(error instanceof EgretError && error.retryable)) {
          throw error;
        }
        await sleep(backoff.delayMs());
      }
    }
    // It may have ended in the last moment, and without any time it is only looked at.
    const message = await this.#connection.call(this.#connection.client.waitTask, { id, waitMs: 0 });
    const task = new TaskInfo(message);
    if (task.ended) {
      return task;
    }
    const text = `task ${id} has not ended within ${timeoutMs} ms`;
    throw new TimedOut("wait_timed_out", text, { retryable: true });
  }

  /**
   * Waits until a task has completed, and returns its result. Rejects with `TaskFailed` when it is
   * dead, `TaskCancelled` when it was cancelled, `TimedOut` after `timeoutMs`.
   */
  async result<Result = any>(id: string, options: { timeoutMs?: number } = {}): Promise<Result> {
    const task = await this.wait(id, options);
    if (task.state === "dead") {
      throw new TaskFailed("task_failed", task.error || `task ${id} is dead`);
    }
    if (task.state === "cancelled") {
      throw new TaskCancelled("task_cancelled", `task ${id} was cancelled`);
    }
    return task.result as Result;
  }

  /** Cancels a task that has not ended; a worker that holds it is told. */
  async cancel(id: string): Promise<TaskInfo> {
    return new TaskInfo(await this.#connection.call(this.#connection.client.cancelTask, { id }));
  }

  /** Puts a dead or cancelled task back, with its attempts at zero. */
  async requeue(id: string): Promise<TaskInfo> {
    return new TaskInfo(await this.#connection.call(this.#connection.client.requeueTask, { id }));
  }

  /** Deletes a task that is not leased. */
  async delete(id: string): Promise<void> {
    await this.#connection.call(this.#connection.client.deleteTask, { id });
  }

  // ---- Queues, schedules, changes. ----

  /** The queue of this name, whether it exists yet or not. */
  queue(name: string): Queue {
    return new Queue(this.#connection, this.#producer, name);
  }

  /** Every queue of the tenant. */
  async queues(): Promise<QueueInfo[]> {
    const { queues } = await this.#connection.call(this.#connection.client.listQueues, {});
    return queues.map(queueOf);
  }

  /** The schedule of this name, whether it exists yet or not. */
  schedule(name: string): Schedule {
    return new Schedule(this.#connection, name);
  }

  /** Every schedule of the tenant. */
  async schedules(): Promise<ScheduleInfo[]> {
    const { schedules } = await this.#connection.call(this.#connection.client.listSchedules, {});
    return schedules.map(scheduleOf);
  }

  /** The changes of tasks from now on, of all queues and to all states unless said otherwise. */
  watch(options: { queues?: readonly string[]; states?: readonly State[] } = {}): Watch {
    const request = {
      queues: [...(options.queues ?? [])],
      states: (options.states ?? []).map(stateNumber),
    };
    return new Watch(this.#connection.client.watch(request, this.#connection.metadata));
  }
}

/** One queue. Made by `Client.queue`. */
export class Queue {
  readonly #connection: Connection;
  readonly #producer: Producer;
  readonly name: string;

  /** @internal */
  constructor(connection: Connection, producer: Producer, name: string) {
    this.#connection = connection;
    this.#producer = producer;
    this.name = text(name, "the name of a queue");
  }

  /**
   * Enqueues a task, and returns its id once it is on disk. Bytes (`Uint8Array`) stay bytes, any
   * other payload is sent as JSON.
   *
   * Tasks of concurrent callers share messages. Rejects with `UnknownOutcome` when the connection
   * was lost at the wrong moment; with a `uniqueKey` the task is sent again instead, unless its
   * `uniqueWindowMs` is about over by then.
   */
  async enqueue(payload: unknown, options: TaskOptions = {}): Promise<Enqueued> {
    return this.#producer.enqueue(this.name, newTask(payload, options));
  }

  /**
   * Enqueues up to 1,000 tasks by one call; their outcomes are in the same order. `after` may name
   * tasks of the same call: `#0` is the first. Rejects with `EnqueueRefused` when some were refused;
   * the others are enqueued then, unless the call is `atomic`: then all tasks are enqueued or none.
   * Rejects with `UnknownOutcome` when the connection was lost meanwhile; it is `retryable` if all have
   * a `uniqueKey`, as the same call then enqueues none twice while their `uniqueWindowMs` lasts.
   */
  async enqueueMany(tasks: readonly NewTask[], { atomic = false }: { atomic?: boolean } = {}): Promise<Enqueued[]> {
    const messages = tasks.map(({ payload, queue, ...options }) => newTask(payload, options, queue));
    const request = { queue: this.name, tasks: messages, atomic };
    const outcomes = await enqueueMany(this.#connection, request);
    const enqueued = outcomes.filter((outcome): outcome is Enqueued => !(outcome instanceof EgretError));
    if (enqueued.length < outcomes.length) {
      throw new EnqueueRefused(outcomes);
    }
    return enqueued;
  }

  /**
   * The tasks of a state, with a tag, or all, without payloads and results. Egret is asked for
   * `page` of them at a time, 1 to 1,000; 100 when left out.
   */
  tasks(options: { state?: State; tag?: string; page?: number } = {}): TaskListing {
    return new TaskListing(this.#connection, {
      queue: this.name,
      state: options.state === undefined ? pb.TaskState.UNSPECIFIED : stateNumber(options.state),
      tag: options.tag ?? "",
      limit: count(options.page ?? 100, "page"),
      cursor: "",
    });
  }

  /** Creates the queue, or changes the settings given. */
  async put(settings: QueueSettings = {}): Promise<QueueInfo> {
    const request = { name: this.name, settings: settingsMessage(settings) };
    return queueOf(await this.#connection.call(this.#connection.client.putQueue, request));
  }

  /** Settings, counts per state and age of the queue. */
  async info(): Promise<QueueInfo> {
    return queueOf(await this.#connection.call(this.#connection.client.getQueue, { name: this.name }));
  }

  /** No task is handed out until `resume`; enqueues go on. */
  async pause(): Promise<QueueInfo> {
    return queueOf(await this.#connection.call(this.#connection.client.pauseQueue, { name: this.name }));
  }

  /** Nothing more is enqueued until `resume`; work goes on. */
  async drain(): Promise<QueueInfo> {
    return queueOf(await this.#connection.call(this.#connection.client.drainQueue, { name: this.name }));
  }

  /** Ends a pause or a drain. */
  async resume(): Promise<QueueInfo> {
    return queueOf(await this.#connection.call(this.#connection.client.resumeQueue, { name: this.name }));
  }

  /** Deletes the queue if it has no tasks, or with `force` all its tasks too. */
  async delete(options: { force?: boolean } = {}): Promise<void> {
    const request = { name: this.name, force: options.force ?? false };
    await this.#connection.call(this.#connection.client.deleteQueue, request);
  }

  /** Deletes the tasks of these states, or of all but the leased ones; how many. */
  async purge(states: readonly State[] = []): Promise<number> {
    const request = { name: this.name, states: states.map(stateNumber) };
    return (await this.#connection.call(this.#connection.client.purgeQueue, request)).deleted;
  }

  /** Puts dead tasks back, oldest first, at most `limit` unless zero; how many. */
  async requeueDead(limit = 0): Promise<number> {
    const request = { name: this.name, limit };
    return (await this.#connection.call(this.#connection.client.requeueDead, request)).requeued;
  }
}

/** Tasks of a queue, page by page. Made by `Queue.tasks`. */
export class TaskListing implements AsyncIterableIterator<TaskInfo> {
  readonly #tasks: AsyncGenerator<TaskInfo, void>;
  readonly #unavailable = new Set<number>();

  /** @internal */
  constructor(connection: Connection, request: pb.ListTasksRequest) {
    this.#tasks = this.#read(connection, request);
  }

  /** Partitions that have failed, as of the pages read: their tasks are missing. */
  get unavailablePartitions(): number[] {
    return [...this.#unavailable].sort((a, b) => a - b);
  }

  next(): Promise<IteratorResult<TaskInfo, void>> {
    return this.#tasks.next();
  }

  /** Reads no more pages. */
  return(): Promise<IteratorResult<TaskInfo, void>> {
    return this.#tasks.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async *#read(connection: Connection, request: pb.ListTasksRequest): AsyncGenerator<TaskInfo, void> {
    do {
      const page = await connection.call(connection.client.listTasks, request);
      for (const partition of page.unavailablePartitions) {
        this.#unavailable.add(partition);
      }
      for (const task of page.tasks) {
        yield new TaskInfo(task);
      }
      request.cursor = page.nextCursor;
    } while (request.cursor !== "");
  }
}

/** One schedule. Made by `Client.schedule`. */
export class Schedule {
  readonly #connection: Connection;
  readonly name: string;

  /** @internal */
  constructor(connection: Connection, name: string) {
    this.#connection = connection;
    this.name = name;
  }

  /** Creates or replaces the schedule: a task per tick of a cron expression. */
  async put(options: ScheduleOptions): Promise<ScheduleInfo> {
    const request = scheduleMessage(this.name, options);
    return scheduleOf(await this.#connection.call(this.#connection.client.putSchedule, request));
  }

  /** The schedule with its last and next tick. */
  async info(): Promise<ScheduleInfo> {
    return scheduleOf(await this.#connection.call(this.#connection.client.getSchedule, { name: this.name }));
  }

  /** No tick until `resume`. */
  async pause(): Promise<ScheduleInfo> {
    return scheduleOf(await this.#connection.call(this.#connection.client.pauseSchedule, { name: this.name }));
  }

  /** Ends a pause. */
  async resume(): Promise<ScheduleInfo> {
    return scheduleOf(await this.#connection.call(this.#connection.client.resumeSchedule, { name: this.name }));
  }

  /** Deletes the schedule; tasks it has made stay. */
  async delete(): Promise<void> {
    await this.#connection.call(this.#connection.client.deleteSchedule, { name: this.name });
  }
}

/**
 * A subscription to changes of tasks. Made by `Client.watch`; changes are kept from then on until
 * they are read by `for await`.
 *
 * It ends with an error when the connection is lost, as it is unknown which changes were
 * missed.
 */
export class Watch implements AsyncIterable<TaskChange> {
  readonly #stream: ClientReadableStream<pb.WatchResponse>;
  #closed = false;
  /** Changes left out so far because they were not read fast enough. */
  missed = 0;
  /** Resolves when the subscription is in force: no change after that is left out unsaid. */
  readonly open: Promise<void>;

  /** @internal */
  constructor(stream: ClientReadableStream<pb.WatchResponse>) {
    this.#stream = stream;
    this.open = new Promise((resolve, reject) => {
      stream.once("metadata", () => resolve());
      stream.on("error", (error) => reject(ofThrown(error)));
    });
    // A caller that does not wait for it gets the same error when reading.
    this.open.catch(() => undefined);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TaskChange, void> {
    try {
      for await (const response of this.#stream as AsyncIterable<pb.WatchResponse>) {
        this.missed += response.missed;
        for (const change of response.changes) {
          yield changeOf(change);
        }
      }
    } catch (error) {
      if (!this.#closed) {
        throw ofThrown(error);
      }
    } finally {
      this.close();
    }
  }

  /** Ends the subscription, and the loop that reads it. */
  close(): void {
    this.#closed = true;
    this.#stream.cancel();
  }
}
