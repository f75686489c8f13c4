/** What a worker keeps of each task: that it runs, and then how it ended. */

import type * as pb from "./generated/queue.js";
import type { Task } from "./task.js";

/** What is longer in an error or a reason is cut off, as Egret keeps no more of it. */
const TEXT_BYTES_MAX = 8_000;

/** A task whose lease this worker holds. */
export interface Running {
  id: string;
  lease: Buffer;
  key: string;
  task: Task;
  leaseMs: number;
  beatAtMs: number;
  /** A heartbeat is to be sent with the next message. */
  beatWaits: boolean;
  /** When Egret last said that the lease is this worker's; it lasts for `leaseMs` at most from then. */
  heldAtMs: number;
  overdue: boolean;
  over: boolean;
}

/** The end of an attempt, kept until it is acknowledged. */
export interface Report {
  id: string;
  message: pb.TaskReport;
  tries: number;
  /** It was sent over a stream that ended before the acknowledgement came. */
  again: boolean;
}

/** What an attempt is said to have failed with. */
export function textOf(error: unknown): string {
  try {
    return String(error);
  } catch {
    // It cannot say itself.
    return "an error without a text";
  }
}

/** A text that is at most as long as Egret keeps; what is cut in the middle of a character ends before it. */
export function cut(text: string): string {
  const said = String(text).slice(0, TEXT_BYTES_MAX);
  if (Buffer.byteLength(said) <= TEXT_BYTES_MAX) {
    return said;
  }
  const { read } = new TextEncoder().encodeInto(said, new Uint8Array(TEXT_BYTES_MAX));
  return said.slice(0, read);
}

/** About how many bytes a report has in a message. */
export function sizeOf({ completed, failed, nack }: pb.TaskReport): number {
  return (completed?.result.length ?? 0) + Buffer.byteLength(failed?.error ?? nack?.reason ?? "");
}
