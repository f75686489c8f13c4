/** Egret's task queue for Node: enqueue, work, look and operate. */

export { Client, type ClientOptions, Queue, Schedule, TaskListing, Watch } from "./client.js";
export {
  Conflict,
  Denied,
  EgretError,
  EnqueueRefused,
  Internal,
  InvalidRequest,
  LeaseLost,
  LimitReached,
  NotFound,
  TaskCancelled,
  TaskFailed,
  TimedOut,
  Unauthenticated,
  Unavailable,
  UnknownOutcome,
} from "./errors.js";
export {
  type Attempt,
  type Enqueued,
  type Missed,
  type NewTask,
  type QueueInfo,
  type QueueSettings,
  type Retention,
  type RetryPolicy,
  type ScheduleInfo,
  type ScheduleOptions,
  type State,
  type TaskChange,
  TaskInfo,
  type TaskOptions,
} from "./model.js";
export { type Handler, PermanentError, Retry, Snooze, Task } from "./task.js";
export { Worker, type WorkOptions } from "./worker.js";
