/** The server that the tests run against. The program that runs the tests has started it. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after } from "node:test";
import { createInterface } from "node:readline";

import { Client, type Handler, type Queue, type WorkOptions, type Worker } from "egret";

function fromEnvironment(name: string): string {
  const value = process.env[name];
  assert.ok(value, `${name} is not set`);
  return value;
}

export const URL = fromEnvironment("EGRET_URL");
export const TOKEN = fromEnvironment("EGRET_TOKEN");

/** Far longer than anything here takes on a slow machine; only a broken test waits for it. */
const PATIENCE_MS = 60_000;

const answers = createInterface({ input: process.stdin });
const lines = answers[Symbol.asyncIterator]();
after(() => {
  answers.close();
  process.stdin.destroy();
});

/**
 * Has the server killed and started again by the program that runs the tests: it reads `KILL` from
 * standard output and answers with a line when the server is up again.
 */
export function killServer(): Promise<void> {
  return askFor("KILL");
}

/** The same with `STOP`, by the signal that lets the server end in an orderly way. */
export function stopServer(): Promise<void> {
  return askFor("STOP");
}

async function askFor(word: string): Promise<void> {
  process.stdout.write(`${word}\n`);
  const { done } = await lines.next();
  assert.ok(!done, "nobody is there to restart the server");
}

/** What a test works with: a client and a queue of its own. */
export interface Bench {
  client: Client;
  name: string;
  queue: Queue;
  /** Starts a worker on the queue, which is stopped when the test ends. */
  start: (handler: Handler, options?: WorkOptions) => { worker: Worker; running: Promise<void> };
}

/** Runs a test on a bench of its own, and puts everything away. */
export async function onBench(run: (bench: Bench) => Promise<void>): Promise<void> {
  const client = new Client(URL, TOKEN);
  const name = `typescript-${randomUUID().slice(0, 13)}`;
  const queue = client.queue(name);
  await queue.put();
  const started: Array<{ worker: Worker; running: Promise<void> }> = [];
  const start: Bench["start"] = (handler, options) => {
    const worker = client.worker(name, handler, options);
    const running = worker.run();
    running.catch(() => undefined);
    started.push({ worker, running });
    return { worker, running };
  };
  try {
    await run({ client, name, queue, start });
  } finally {
    for (const { worker, running } of started) {
      worker.stop();
      await running.catch(() => undefined);
    }
    await client.close();
  }
}

/** What must happen, and does not take long. */
export async function soon<T>(what: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("it took too long")), PATIENCE_MS);
  });
  try {
    return await Promise.race([what, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Looks again and again until something holds. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + PATIENCE_MS;
  while (!(await holds())) {
    assert.ok(performance.now() < endMs, "it took too long");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A promise with its resolver beside it. */
export function signal<T = void>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((resolver) => (resolve = resolver));
  return { promise, resolve };
}

/** Resolves when work has become vain. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
    }
    signal.addEventListener("abort", () => resolve());
  });
}

export function sleep(delayMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, delayMs));
}
