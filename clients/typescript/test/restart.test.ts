/** The server ends and comes back: the program that runs the tests restarts it (see `server`). */

import assert from "node:assert/strict";
import { test } from "node:test";

import { UnknownOutcome } from "egret";

import { killServer, onBench, signal, sleep, soon, stopServer, until } from "./server.js";

test("nothing acknowledged is lost", () =>
  onBench(async ({ client, queue, start }) => {
    const seen = new Set<number>();
    const some = signal();
    // Short, so that what the dead server had pushed on its way out comes back soon.
    start(
      async (task) => {
        seen.add(task.payload);
        if (seen.size === 300) {
          some.resolve();
        }
        await sleep(10);
      },
      { concurrency: 64, leaseMs: 2_000 },
    );
    const acknowledged = new Map<number, string>();
    let unknown = 0;
    let next = 0;
    const caller = async (_: unknown, number: number) => {
      const keyed = number % 2 === 0;
      while (next < 4000) {
        const n = next++;
        try {
          const options = keyed ? { uniqueKey: `task-${n}` } : {};
          acknowledged.set(n, (await queue.enqueue(n, options)).id);
        } catch (error) {
          assert.ok(error instanceof UnknownOutcome, String(error));
          assert.ok(!keyed, "a task with a key is sent again instead");
          unknown += 1;
        }
      }
    };
    const callers = Promise.all(Array.from({ length: 32 }, caller));
    await soon(some.promise);
    await killServer();
    await soon(callers);
    // A caller has at most one task on its way when the connection is lost.
    assert.ok(unknown <= 16, `${unknown} unknown`);
    assert.equal(acknowledged.size, 4000 - unknown);
    assert.equal(new Set(acknowledged.values()).size, acknowledged.size);
    for (const [n, id] of acknowledged) {
      assert.equal((await soon(client.wait(id))).state, "completed");
      assert.ok(seen.has(n));
    }
  }));

test("a report outlives the connection", () =>
  onBench(async ({ client, queue, start }) => {
    const started = signal();
    const goOn = signal();
    let attempts = 0;
    start(
      async () => {
        attempts += 1;
        started.resolve();
        await goOn.promise;
        return "kept";
      },
      { leaseMs: 60_000 },
    );
    const { id } = await queue.enqueue(1);
    await soon(started.promise);
    const killing = killServer();
    // The handler ends while no server listens; its report goes to the server that comes back.
    await sleep(100);
    goOn.resolve();
    await soon(killing);
    assert.equal(await soon(client.result(id)), "kept");
    assert.equal(attempts, 1);
  }));

test("a server that stops leaves no doubt", () =>
  onBench(async ({ queue, start }) => {
    const { worker } = start(() => undefined, { concurrency: 16 });
    const some = signal();
    const ids = new Set<string>();
    let next = 0;
    const caller = async () => {
      while (next < 4000) {
        ids.add((await queue.enqueue(next++)).id);
        if (ids.size === 1000) {
          some.resolve();
        }
      }
    };
    const callers = Promise.all(Array.from({ length: 32 }, caller));
    await soon(some.promise);
    await soon(stopServer());
    await soon(callers);
    assert.equal(ids.size, 4000);
    await until(async () => (await queue.info()).counts.completed >= 4000);
    // None was enqueued twice, and each was worked on once.
    assert.equal((await queue.info()).counts.completed, 4000);
    assert.equal(worker.completed, 4000);
  }));
