/**
 * Waiting for tasks over one stream, however many callers wait: a stream for each of them would use up
 * those that one connection may have, and every other call would hang.
 */

import { type Connection, Wakeup, closed } from "./connection.js";
import { Duplex } from "./duplex.js";
import { EgretError, Internal, ofItem, ofStatus } from "./errors.js";
import type * as pb from "./generated/queue.js";

/** Most waits in one message. */
const MESSAGE_WAITS_MAX = 1_000;
/** Waits that Egret has at a time; it takes a thousand more, so that what is cancelled is always read. */
const OPEN_MAX = 9_000;

interface Wait {
  id: string;
  resolve(task: pb.Task): void;
  reject(error: unknown): void;
}

/** Sends waits, and hands each caller the task as it ended. */
export class Waiter {
  readonly #connection: Connection;
  readonly #waits = new Map<number, Wait>();
  readonly #sent = new Set<number>();
  readonly #wakeup = new Wakeup();
  #unsent: number[] = [];
  #cancelled: number[] = [];
  #number = 0;
  #closing = false;
  #driver: Promise<void> | undefined;
  #stream: Duplex<pb.WaitTasksRequest, pb.WaitTasksResponse> | undefined;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Waits until a task has ended, at most `timeoutMs`: undefined then. Rejects with what Egret refuses
   * it with, or why the stream ended.
   */
  async wait(id: string, timeoutMs: number | undefined): Promise<pb.Task | undefined> {
    if (this.#closing) {
      throw closed();
    }
    const number = this.#number++;
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<pb.Task | undefined>((resolve, reject) => {
        this.#waits.set(number, { id, resolve, reject });
        this.#unsent.push(number);
        if (timeoutMs !== undefined) {
          timer = setTimeout(() => resolve(undefined), Math.min(timeoutMs, 2 ** 31 - 1));
        }
        this.#driver ??= this.#run();
        this.#wakeup.ring();
      });
    } finally {
      clearTimeout(timer);
      this.#waits.delete(number);
      if (this.#sent.delete(number)) {
        this.#cancelled.push(number);
        this.#wakeup.ring();
      }
    }
  }

  /** Ends the stream; who still waits is told. */
  async close(): Promise<void> {
    this.#closing = true;
    this.#stream?.cancel();
    this.#wakeup.ring();
    await this.#driver;
  }

  async #run(): Promise<void> {
    let ended: unknown;
    try {
      const wanted = () => !this.#closing;
      ended = (await this.#connection.ready(wanted)) ? await this.#converse() : closed();
    } catch (error) {
      ended = error instanceof EgretError ? error : new Internal("client_fault", `the client has failed: ${error}`);
    }
    this.#driver = undefined;
    this.#stream = undefined;
    const waits = [...this.#waits.values()];
    this.#waits.clear();
    this.#sent.clear();
    this.#unsent = [];
    this.#cancelled = [];
    for (const wait of waits) {
      wait.reject(this.#closing ? closed() : ended);
    }
  }

  /** One stream from its beginning to its end, and why it ended. */
  async #converse(): Promise<EgretError> {
    const { client, metadata } = this.#connection;
    const take = (response: pb.WaitTasksResponse) => {
      for (const outcome of response.outcomes) {
        this.#take(outcome);
      }
      this.#wakeup.ring();
    };
    const stream = (this.#stream = new Duplex(client.waitTasks(metadata), take));
    void stream.end.then(() => this.#wakeup.ring());
    await stream.opened;
    while (!stream.ended && !this.#closing) {
      const message = this.#pack();
      if (message) {
        await stream.write(message);
      } else {
        await this.#wakeup.wait();
      }
    }
    if (this.#closing) {
      stream.cancel();
    }
    return ofStatus(await stream.end);
  }

  #pack(): pb.WaitTasksRequest | undefined {
    const cancelled = this.#cancelled.splice(0, MESSAGE_WAITS_MAX);
    const room = Math.min(MESSAGE_WAITS_MAX, OPEN_MAX - this.#sent.size);
    const waits: pb.Wait[] = [];
    for (const number of this.#unsent.splice(0, Math.max(room, 0))) {
      const wait = this.#waits.get(number);
      if (wait) {
        waits.push({ number, id: wait.id });
        this.#sent.add(number);
      }
    }
    return waits.length > 0 || cancelled.length > 0 ? { waits, cancelled } : undefined;
  }

  #take(outcome: pb.WaitOutcome): void {
    this.#sent.delete(outcome.number);
    const wait = this.#waits.get(outcome.number);
    if (outcome.task) {
      wait?.resolve(outcome.task);
    } else if (outcome.error) {
      wait?.reject(ofItem(outcome.error));
    }
  }
}
