/** The connection to one Egret: the channel, single calls, and how long to wait between attempts. */

import { ChannelCredentials, Metadata, type ServiceError } from "@grpc/grpc-js";

import { type EgretError, Unavailable, ofThrown } from "./errors.js";
import { QueueClient } from "./generated/queue.js";

/** Milliseconds before the second attempt to reach Egret. */
const BACKOFF_FIRST_MS = 100;
/** Most milliseconds between two attempts. */
const BACKOFF_LONGEST_MS = 5_000;
/** How long to wait for the end of a stream over which nothing more is to come. */
export const GOODBYE_MS = 5_000;
/** How often a caller that waits for a connection checks whether it is still wanted. */
const READY_LOOK_MS = 500;

/** Delays that double up to a longest one, each with jitter, until something succeeds. */
export class Backoff {
  #next = BACKOFF_FIRST_MS;

  /** The delay before try number `tries` of one thing among others, the first being zero. */
  static delayMs(tries: number): number {
    const backoff = new Backoff();
    backoff.#next = Math.min(BACKOFF_FIRST_MS * 2 ** tries, BACKOFF_LONGEST_MS);
    return backoff.delayMs();
  }

  /** Something succeeded: the next delay is the shortest again. */
  reset(): void {
    this.#next = BACKOFF_FIRST_MS;
  }

  /** Milliseconds to wait now: half of the delay that is due, and up to as much again. */
  delayMs(): number {
    const due = this.#next;
    this.#next = Math.min(due * 2, BACKOFF_LONGEST_MS);
    return due * (0.5 + Math.random() / 2);
  }
}

/** Wakes one waiting loop; a ring before the wait is not lost. */
export class Wakeup {
  #rung = false;
  #wake: (() => void) | undefined;

  /** Lets the wait of now, or else the next one, end. */
  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  /** Resolves once it has been rung since the last wait, or after so many milliseconds. */
  async wait(timeoutMs?: number): Promise<void> {
    if (!this.#rung) {
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        if (timeoutMs !== undefined) {
          timer = setTimeout(resolve, timeoutMs);
        }
      });
      clearTimeout(timer);
      this.#wake = undefined;
    }
    this.#rung = false;
  }
}

/** Ends when the I/O that is there has been looked at, so that what it brings can be packed too. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

export function sleep(delayMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, delayMs));
}

export interface ConnectionOptions {
  callTimeoutMs: number;
  rootCertificates: Buffer | undefined;
}

type Unary<Request, Reply> = (
  request: Request,
  metadata: Metadata,
  options: { deadline: number },
  callback: (error: ServiceError | null, reply: Reply) => void,
) => unknown;

export class Connection {
  readonly client: QueueClient;
  readonly metadata = new Metadata();
  readonly callTimeoutMs: number;
  #closed = false;

  constructor(url: string, token: string, options: ConnectionOptions) {
    // What stands before `@` may be a password, which the error of `new URL` would show.
    const shown = url.slice(url.lastIndexOf("@") + 1);
    const parts = URL.canParse(url) ? new URL(url) : undefined;
    const secure = parts?.protocol === "https:";
    if (parts === undefined || (!secure && parts.protocol !== "http:")) {
      throw new TypeError(`the url ${shown} is not of the form http://127.0.0.1:7070 or https://host`);
    }
    if (parts.pathname !== "/" || parts.search || parts.hash || parts.username) {
      throw new TypeError(`the url ${shown} has more than scheme, host and port`);
    }
    this.callTimeoutMs = options.callTimeoutMs;
    this.metadata.set("authorization", `Bearer ${token}`);
    const target = `${parts.hostname}:${parts.port || (secure ? 443 : 80)}`;
    const credentials = secure
      ? ChannelCredentials.createSsl(options.rootCertificates ?? null)
      : ChannelCredentials.createInsecure();
    this.client = new QueueClient(target, credentials, {
      // A page of results or a message full of tasks may be larger than gRPC's default of 4 MiB.
      "grpc.max_receive_message_length": -1,
      "grpc.max_send_message_length": -1,
      "grpc.initial_reconnect_backoff_ms": BACKOFF_FIRST_MS,
      "grpc.max_reconnect_backoff_ms": BACKOFF_LONGEST_MS,
      // A peer that has gone without a word is noticed within half a minute.
      "grpc.keepalive_time_ms": 20_000,
      "grpc.keepalive_timeout_ms": 10_000,
      // Clients of one process must not share a connection without knowing it.
      "grpc.use_local_subchannel_pool": 1,
    });
  }

  /** One call with one answer. */
  async call<Request, Reply>(
    method: Unary<Request, Reply>,
    request: Request,
    timeoutMs: number = this.callTimeoutMs,
  ): Promise<Reply> {
    try {
      return await this.rawCall(method, request, timeoutMs);
    } catch (error) {
      throw ofThrown(error);
    }
  }

  /** The same, with gRPC's own error. */
  rawCall<Request, Reply>(
    method: Unary<Request, Reply>,
    request: Request,
    timeoutMs: number = this.callTimeoutMs,
  ): Promise<Reply> {
    if (this.#closed) {
      return Promise.reject(closed());
    }
    const options = { deadline: Date.now() + timeoutMs };
    return new Promise((resolve, reject) => {
      method.call(this.client, request, this.metadata, options, (error, reply) => {
        if (error) {
          reject(error);
        } else {
          resolve(reply);
        }
      });
    });
  }

  /**
   * Waits until Egret is connected, as long as it is wanted; whether it is connected. The channel
   * tries again by itself, with backoff and jitter.
   */
  async ready(wanted: () => boolean): Promise<boolean> {
    while (wanted() && !this.#closed) {
      const connected = await new Promise<boolean>((resolve) => {
        this.client.waitForReady(Date.now() + READY_LOOK_MS, (error) => resolve(!error));
      });
      if (connected) {
        return true;
      }
    }
    return false;
  }

  close(): void {
    this.#closed = true;
    this.client.close();
  }
}

/** The error of calls on a client that was closed. */
export function closed(): EgretError {
  return new Unavailable("client_closed", "the client is closed");
}
