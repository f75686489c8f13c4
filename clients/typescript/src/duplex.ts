/** A stream in both directions: writes that can be awaited, and how it ended. */

import { type ClientDuplexStream, type ServiceError, status as Status } from "@grpc/grpc-js";

import { GOODBYE_MS } from "./connection.js";
import type { Ended } from "./errors.js";

export class Duplex<Request, Response> {
  readonly #stream: ClientDuplexStream<Request, Response>;
  #ended: Ended | undefined;
  #tellEnded!: (ended: Ended) => void;
  #release: (() => void) | undefined;

  /** Resolves when the server has answered that the stream is open, or when it has ended. */
  readonly opened: Promise<void>;

  /** Resolves when the stream has ended, in whichever way. */
  readonly end: Promise<Ended>;

  constructor(stream: ClientDuplexStream<Request, Response>, take: (response: Response) => void) {
    this.#stream = stream;
    this.end = new Promise((resolve) => (this.#tellEnded = resolve));
    this.opened = new Promise((resolve) => {
      stream.once("metadata", () => resolve());
      void this.end.then(() => resolve());
    });
    stream.on("data", take);
    stream.on("status", (status) => this.#finish(status));
    // Comes before the status and is the same, except for a write that failed by itself.
    stream.on("error", (error: Error & Partial<ServiceError>) => {
      const { code = Status.UNAVAILABLE, details = error.message, metadata } = error;
      this.#finish({ code, details, metadata });
    });
  }

  get ended(): boolean {
    return this.#ended !== undefined;
  }

  /** Hands a message to the connection; resolves when the next one may follow. */
  write(message: Request): Promise<void> {
    return new Promise((resolve) => {
      if (this.#ended) {
        resolve();
        return;
      }
      // A stream that has ended may leave a write unanswered.
      this.#release = resolve;
      this.#stream.write(message, () => resolve());
    });
  }

  /** Tells the server that nothing more comes, and waits for the end, but not for ever. */
  async close(): Promise<void> {
    this.#stream.end();
    let timer: NodeJS.Timeout | undefined;
    const enough = new Promise((resolve) => (timer = setTimeout(resolve, GOODBYE_MS)));
    await Promise.race([this.end, enough]);
    clearTimeout(timer);
    this.cancel();
  }

  cancel(): void {
    this.#stream.cancel();
  }

  #finish(ended: Ended): void {
    if (this.#ended === undefined) {
      this.#ended = ended;
      this.#tellEnded(ended);
      this.#release?.();
    }
  }
}
