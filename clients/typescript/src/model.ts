/** The nouns: what is told to Egret and what it tells. Durations are in milliseconds. */

import * as pb from "./generated/queue.js";
import {
  checkNames,
  count,
  decode,
  encode,
  gettersOf,
  milliseconds,
  moment,
  names,
  text,
  unixMilliseconds,
} from "./payload.js";

/** Where a task is in its life. The last three are ends. */
export type State =
  /** Other tasks must complete before. */
  | "waiting"
  /** Its time has not come: delayed, or between two attempts. */
  | "delayed"
  | "ready"
  | "leased"
  | "completed"
  /** Failed for good. */
  | "dead"
  | "cancelled";

const STATES: Record<State, pb.TaskState> = {
  waiting: pb.TaskState.WAITING,
  delayed: pb.TaskState.DELAYED,
  ready: pb.TaskState.READY,
  leased: pb.TaskState.LEASED,
  completed: pb.TaskState.COMPLETED,
  dead: pb.TaskState.DEAD,
  cancelled: pb.TaskState.CANCELLED,
};

export function stateNumber(state: State): pb.TaskState {
  const number = STATES[state];
  if (number === undefined) {
    throw new RangeError(`state ${JSON.stringify(state)} is not one of ${Object.keys(STATES).join(", ")}`);
  }
  return number;
}

function stateOf(number: pb.TaskState): State {
  return pb.TaskState[number].toLowerCase() as State;
}

/** Whether nothing more happens to a task in this state by itself. */
export function ended(state: State): boolean {
  return state === "completed" || state === "dead" || state === "cancelled";
}

/** The acknowledgement of a task: it is on disk. */
export interface Enqueued {
  /** Of the task, or of the first one with the same unique key. */
  id: string;
  /** There was such a task already: `id` is the first one's, which may have ended. */
  replayed: boolean;
}

/** How long to wait before the next attempt. */
export interface RetryPolicy {
  /** `baseMs` each time, times the number of failed attempts, or doubled with each. */
  backoff: "fixed" | "linear" | "exponential";
  baseMs: number;
  /** The longest delay; the server's own when left out. */
  maxMs?: number;
  /** None, anything from zero to the computed delay, or half of it and up to as much again. */
  jitter?: "none" | "full" | "equal";
}

const BACKOFFS = {
  fixed: pb.RetryPolicy_Backoff.FIXED,
  linear: pb.RetryPolicy_Backoff.LINEAR,
  exponential: pb.RetryPolicy_Backoff.EXPONENTIAL,
};
const JITTERS = {
  none: pb.RetryPolicy_Jitter.NONE,
  full: pb.RetryPolicy_Jitter.FULL,
  equal: pb.RetryPolicy_Jitter.EQUAL,
};

const POLICY_OPTIONS = names<RetryPolicy>({ backoff: true, baseMs: true, maxMs: true, jitter: true });

function policyMessage(policy: RetryPolicy): pb.RetryPolicy {
  checkNames(policy, POLICY_OPTIONS, "a retry policy");
  const backoff = BACKOFFS[policy.backoff];
  const jitter = JITTERS[policy.jitter ?? "full"];
  if (backoff === undefined || jitter === undefined) {
    throw new RangeError(`unknown retry policy ${JSON.stringify(policy)}`);
  }
  return {
    backoff,
    baseMs: milliseconds(policy.baseMs, "baseMs"),
    maxMs: policy.maxMs === undefined ? 0 : milliseconds(policy.maxMs, "maxMs"),
    jitter,
  };
}

function policyOf(message: pb.RetryPolicy): RetryPolicy {
  return {
    backoff: pb.RetryPolicy_Backoff[message.backoff].toLowerCase() as RetryPolicy["backoff"],
    baseMs: message.baseMs,
    maxMs: message.maxMs,
    jitter: pb.RetryPolicy_Jitter[message.jitter].toLowerCase() as NonNullable<RetryPolicy["jitter"]>,
  };
}

/** What a task may say about itself; what is left out is as the queue says. */
export interface TaskOptions {
  /** 0 to 9; 9 goes first. */
  priority?: number;
  /**
   * Tasks with the same key are worked on one at a time: those of a higher priority first, those of the
   * same in the order they were enqueued. A delayed one takes its place when it becomes ready.
   */
  orderingKey?: string;
  /** Not before so many milliseconds have passed. */
  delayMs?: number;
  /** Not before this time: a date, or milliseconds since 1970. */
  runAt?: Date | number;
  maxAttempts?: number;
  retry?: RetryPolicy;
  /** The longest that an attempt may take, heartbeats or not. */
  timeoutMs?: number;
  /**
   * A second task with this key within the window is not enqueued: the answer is the first one, whatever
   * has become of it, dead included.
   */
  uniqueKey?: string;
  uniqueWindowMs?: number;
  tags?: readonly string[];
  metadata?: Readonly<Record<string, string>>;
  /** Told by POST, signed, when the task has ended. */
  callbackUrl?: string;
  /** Ids of tasks that must complete before; in `enqueueMany` also `#0`, `#1` … of the same call. */
  after?: readonly string[];
  /** W3C trace context, handed to the worker. */
  traceparent?: string;
  tracestate?: string;
}

const TASK_OPTIONS = names<TaskOptions>({
  priority: true,
  orderingKey: true,
  delayMs: true,
  runAt: true,
  maxAttempts: true,
  retry: true,
  timeoutMs: true,
  uniqueKey: true,
  uniqueWindowMs: true,
  tags: true,
  metadata: true,
  callbackUrl: true,
  after: true,
  traceparent: true,
  tracestate: true,
});

/** A task for `enqueueMany` or a schedule. */
export interface NewTask extends TaskOptions {
  /** Bytes (`Uint8Array`) stay bytes, anything else is sent as JSON. */
  payload: unknown;
  /** Where it differs from the queue of the call. */
  queue?: string;
}

function texts(metadata: Readonly<Record<string, string>>): Record<string, string> {
  for (const name in metadata) {
    text(name, "a name in metadata");
    text(metadata[name] as string, "a value in metadata");
  }
  return { ...metadata };
}

export function newTask(payload: unknown, options: TaskOptions, queue = ""): pb.NewTask {
  checkNames(options, TASK_OPTIONS, "a task");
  if (options.delayMs !== undefined && options.runAt !== undefined) {
    throw new RangeError("a task has either a delayMs or a runAt, not both");
  }
  const { data, format } = encode(payload);
  return {
    payload: data,
    format,
    priority: options.priority === undefined ? undefined : count(options.priority, "priority"),
    orderingKey: text(options.orderingKey ?? "", "orderingKey"),
    runAtMs: options.runAt === undefined ? 0 : unixMilliseconds(options.runAt, "runAt"),
    delayMs: options.delayMs === undefined ? 0 : milliseconds(options.delayMs, "delayMs"),
    maxAttempts: options.maxAttempts === undefined ? undefined : count(options.maxAttempts, "maxAttempts"),
    retry: options.retry === undefined ? undefined : policyMessage(options.retry),
    timeoutMs: options.timeoutMs === undefined ? 0 : milliseconds(options.timeoutMs, "timeoutMs"),
    uniqueKey: text(options.uniqueKey ?? "", "uniqueKey"),
    uniqueWindowMs:
      options.uniqueWindowMs === undefined ? 0 : milliseconds(options.uniqueWindowMs, "uniqueWindowMs"),
    tags: (options.tags ?? []).map((tag) => text(tag, "a tag")),
    metadata: options.metadata === undefined ? {} : texts(options.metadata),
    traceparent: text(options.traceparent ?? "", "traceparent"),
    tracestate: text(options.tracestate ?? "", "tracestate"),
    callbackUrl: text(options.callbackUrl ?? "", "callbackUrl"),
    after: (options.after ?? []).map((id) => text(id, "an id in after")),
    queue: text(queue, "queue"),
  };
}

/** One time that a worker held a task. */
export interface Attempt {
  number: number;
  worker: string;
  startedAt: Date | undefined;
  endedAt: Date | undefined;
  /**
   * `completed`, `failed`, `nack`, `snoozed`, `released`, `lease_expired`, `timed_out` or
   * `cancelled`; empty while it runs.
   */
  outcome: string;
  error: string;
}

/** A task as it was when Egret was asked. */
export class TaskInfo {
  readonly #message: pb.Task;

  constructor(message: pb.Task) {
    this.#message = message;
  }

  get id(): string {
    return this.#message.id;
  }
  get queue(): string {
    return this.#message.queue;
  }
  get state(): State {
    return stateOf(this.#message.state);
  }
  /** Whether nothing more happens to the task by itself. */
  get ended(): boolean {
    return ended(this.state);
  }
  get priority(): number {
    return this.#message.priority;
  }
  get orderingKey(): string {
    return this.#message.orderingKey;
  }
  get createdAt(): Date | undefined {
    return moment(this.#message.createdAtMs);
  }
  /** When it becomes ready, while it is delayed. */
  get runAt(): Date | undefined {
    return moment(this.#message.runAtMs);
  }
  /** When the lease ends, while it is leased. */
  get leaseUntil(): Date | undefined {
    return moment(this.#message.leaseUntilMs);
  }
  get endedAt(): Date | undefined {
    return moment(this.#message.endedAtMs);
  }
  get attempts(): number {
    return this.#message.attempts;
  }
  get maxAttempts(): number {
    return this.#message.maxAttempts;
  }
  /** The last attempts, oldest first. */
  get history(): Attempt[] {
    return this.#message.history.map(({ startedAtMs, endedAtMs, ...rest }) => ({
      ...rest,
      startedAt: moment(startedAtMs),
      endedAt: moment(endedAtMs),
    }));
  }
  /** Decoded when it is read; in lists and brief answers `undefined`, or empty of bytes. */
  get payload(): any {
    return decode(this.#message.payload, this.#message.format);
  }
  /** Decoded when it is read; in lists and brief answers `undefined`, or empty of bytes. */
  get result(): any {
    return decode(this.#message.result, this.#message.resultFormat);
  }
  /** Of the last attempt that failed. */
  get error(): string {
    return this.#message.error;
  }
  get tags(): readonly string[] {
    return this.#message.tags;
  }
  get metadata(): Readonly<Record<string, string>> {
    return this.#message.metadata;
  }
  get traceparent(): string {
    return this.#message.traceparent;
  }
  get tracestate(): string {
    return this.#message.tracestate;
  }
  get callbackUrl(): string {
    return this.#message.callbackUrl;
  }
  /** The ids of the tasks it waits for. */
  get after(): readonly string[] {
    return this.#message.after;
  }
  get uniqueKey(): string {
    return this.#message.uniqueKey;
  }

  toJSON(): Record<string, unknown> {
    return gettersOf(this);
  }
}

/** A task has come into a state. */
export interface TaskChange {
  id: string;
  queue: string;
  state: State;
  at: Date | undefined;
  attempt: number;
}

export function changeOf(message: pb.TaskChange): TaskChange {
  return {
    id: message.id,
    queue: message.queue,
    state: stateOf(message.state),
    at: moment(message.atMs),
    attempt: message.attempt,
  };
}

/** How long ended tasks are kept: whichever comes first; zero or left out is unlimited. */
export interface Retention {
  ageMs?: number;
  count?: number;
}

/** What a queue does unless a task says otherwise. What is left out stays as it is. */
export interface QueueSettings {
  maxAttempts?: number;
  retry?: RetryPolicy;
  /** How long a lease lasts without a heartbeat. */
  leaseMs?: number;
  /** The longest that an attempt may take, heartbeats or not. */
  timeoutMs?: number;
  /** Tasks leased at a time; zero: any number. */
  concurrency?: number;
  /** Tasks of one ordering key leased at a time; zero: any number. */
  keyConcurrency?: number;
  /** Tasks handed out in a second; zero: any number. */
  ratePerSecond?: number;
  /** Tasks handed out at once after a pause; zero: a second's worth. */
  rateBurst?: number;
  completed?: Retention;
  dead?: Retention;
  cancelled?: Retention;
  uniqueWindowMs?: number;
  /** A task that has waited so long counts as one priority higher; zero: never. */
  agingMs?: number;
}

const QUEUE_SETTINGS = names<QueueSettings>({
  maxAttempts: true,
  retry: true,
  leaseMs: true,
  timeoutMs: true,
  concurrency: true,
  keyConcurrency: true,
  ratePerSecond: true,
  rateBurst: true,
  completed: true,
  dead: true,
  cancelled: true,
  uniqueWindowMs: true,
  agingMs: true,
});
const RETENTION_OPTIONS = names<Retention>({ ageMs: true, count: true });

export function settingsMessage(settings: QueueSettings): pb.QueueSettings {
  checkNames(settings, QUEUE_SETTINGS, "a queue");
  const { retry, completed, dead, cancelled, ...rest } = settings;
  const counts = ["maxAttempts", "concurrency", "keyConcurrency", "rateBurst"] as const;
  const durations = ["leaseMs", "timeoutMs", "uniqueWindowMs", "agingMs"] as const;
  for (const name of counts) {
    if (rest[name] !== undefined) {
      rest[name] = count(rest[name], name);
    }
  }
  for (const name of durations) {
    if (rest[name] !== undefined) {
      rest[name] = milliseconds(rest[name], name);
    }
  }
  return pb.QueueSettings.fromPartial({
    ...rest,
    retry: retry && policyMessage(retry),
    completed: completed && retentionMessage(completed),
    dead: dead && retentionMessage(dead),
    cancelled: cancelled && retentionMessage(cancelled),
  });
}

function retentionMessage(retention: Retention): pb.Retention {
  checkNames(retention, RETENTION_OPTIONS, "a retention");
  return { ageMs: milliseconds(retention.ageMs ?? 0, "ageMs"), count: retention.count ?? 0 };
}

/** A queue as it was when Egret was asked. */
export interface QueueInfo {
  name: string;
  settings: QueueSettings;
  paused: boolean;
  draining: boolean;
  createdAt: Date | undefined;
  /** Tasks per state. */
  counts: Record<State, number>;
  /** Milliseconds that the task that has been ready longest has been so; zero without one. */
  oldestReadyMs: number;
  /** Partitions that have failed: their tasks are not counted. */
  unavailablePartitions: number[];
}

export function queueOf(message: pb.QueueInfo): QueueInfo {
  const { retry, ...settings } = message.settings ?? pb.QueueSettings.fromPartial({});
  return {
    name: message.name,
    settings: retry === undefined ? settings : { ...settings, retry: policyOf(retry) },
    paused: message.paused,
    draining: message.draining,
    createdAt: moment(message.createdAtMs),
    counts: { ...(message.counts ?? pb.TaskCounts.fromPartial({})) },
    oldestReadyMs: message.oldestReadyMs,
    unavailablePartitions: message.unavailablePartitions,
  };
}

/** What becomes of ticks while Egret was down: left out, one task for all, or one each up to 1,000. */
export type Missed = "skip" | "one" | "all";

const MISSED: Record<Missed, pb.Schedule_Missed> = {
  skip: pb.Schedule_Missed.SKIP,
  one: pb.Schedule_Missed.ONE,
  all: pb.Schedule_Missed.ALL,
};

/** What a schedule does. */
export interface ScheduleOptions {
  /** Minute, hour, day of month, month, day of week; seconds may go first, or `@daily` and the like. */
  cron: string;
  /** IANA name such as `Europe/Zurich`; UTC when left out. */
  timeZone?: string;
  queue: string;
  /** What each tick enqueues. */
  task: Omit<NewTask, "queue">;
  missed?: Missed;
  paused?: boolean;
}

const SCHEDULE_OPTIONS = names<ScheduleOptions>({
  cron: true,
  timeZone: true,
  queue: true,
  task: true,
  missed: true,
  paused: true,
});

export function scheduleMessage(name: string, options: ScheduleOptions): pb.Schedule {
  checkNames(options, SCHEDULE_OPTIONS, "a schedule");
  const { payload, ...task } = options.task;
  return pb.Schedule.fromPartial({
    name,
    cron: options.cron,
    timeZone: options.timeZone ?? "",
    queue: options.queue,
    task: newTask(payload, task),
    missed: options.missed === undefined ? pb.Schedule_Missed.UNSPECIFIED : MISSED[options.missed],
    paused: options.paused ?? false,
  });
}

/** A schedule as it was when Egret was asked. */
export interface ScheduleInfo {
  name: string;
  cron: string;
  timeZone: string;
  queue: string;
  payload: any;
  /** Left out when the server does not say. */
  missed: Missed | undefined;
  paused: boolean;
  nextAt: Date | undefined;
  lastAt: Date | undefined;
  /** The task of the tick at `lastAt`; empty while that tick waits. */
  lastTask: string;
  /** Whether the tick at `lastAt` waits for room, as the tenant is at its limit on tasks. */
  waiting: boolean;
}

export function scheduleOf(message: pb.Schedule): ScheduleInfo {
  const task = message.task;
  const missed = pb.Schedule_Missed[message.missed].toLowerCase();
  return {
    name: message.name,
    cron: message.cron,
    timeZone: message.timeZone,
    queue: message.queue,
    payload: task && decode(task.payload, task.format),
    missed: missed in MISSED ? (missed as Missed) : undefined,
    paused: message.paused,
    nextAt: moment(message.nextAtMs),
    lastAt: moment(message.lastAtMs),
    lastTask: message.lastTask,
    waiting: message.waiting,
  };
}
