/** Enqueueing and working: the fast path, and what becomes of a task. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Client,
  type NewTask,
  PermanentError,
  Retry,
  type RetryPolicy,
  Snooze,
  type Task,
  TaskCancelled,
  TaskFailed,
  TimedOut,
} from "egret";

import { TOKEN, URL, aborted, onBench, signal, sleep, soon, until } from "./server.js";

const AT_ONCE: RetryPolicy = { backoff: "fixed", baseMs: 20, jitter: "none" };

test("a thousand tasks of many callers", () =>
  onBench(async ({ client, queue, start }) => {
    const { worker } = start((task: Task<{ n: number }>) => ({ double: task.payload.n * 2 }), {
      concurrency: 128,
    });
    const ids: string[] = [];
    let next = 0;
    const caller = async () => {
      while (next < 1000) {
        const n = next++;
        ids[n] = (await queue.enqueue({ n })).id;
      }
    };
    await soon(Promise.all(Array.from({ length: 32 }, caller)));
    assert.equal(new Set(ids).size, 1000);
    // What waits goes out together: 32 callers cannot have needed a message for each task.
    assert.ok(client.produceMessagesSent < 500, `${client.produceMessagesSent} messages`);
    const results = await soon(Promise.all(ids.map((id) => client.result<{ double: number }>(id))));
    assert.deepEqual(
      results.map((result) => result.double),
      ids.map((_, n) => n * 2),
    );
    await until(() => worker.completed === 1000);
    assert.equal((await queue.info()).counts.completed, 1000);
  }));

test("many waits leave room for other calls", () =>
  onBench(async ({ client, queue }) => {
    const made = await queue.enqueueMany(Array.from({ length: 400 }, (_, n) => ({ payload: n, delayMs: 600_000 })));
    const ids = made.map((task) => (task as { id: string }).id);
    const waits = ids.map((id) => client.wait(id).catch((error: unknown) => error));
    await soon(client.get(ids[0]!));
    await soon(client.cancel(ids[1]!));
    const ended = await soon(waits[1]!);
    assert.equal((ended as { state: string }).state, "cancelled");
  }));

test("tasks that end together are reported together", () =>
  onBench(async ({ queue, start }) => {
    const together = signal();
    const { worker } = start(() => together.promise, { concurrency: 100 });
    await queue.enqueueMany(Array.from({ length: 100 }, (_, n) => ({ payload: n })));
    await until(() => worker.running === 100);
    const before = worker.messagesSent;
    together.resolve();
    await until(() => worker.completed === 100);
    assert.ok(worker.messagesSent - before <= 3, `${worker.messagesSent - before} messages`);
  }));

test("many tasks enqueued in one go are few messages", () =>
  onBench(async ({ client, queue }) => {
    await soon(Promise.all(Array.from({ length: 2000 }, (_, n) => queue.enqueue(n))));
    // A message takes a thousand; the first may have left with less.
    assert.ok(client.produceMessagesSent <= 4, `${client.produceMessagesSent} messages`);
    assert.equal((await queue.info()).counts.ready, 2000);
  }));

test("payloads and results come as they went", () =>
  onBench(async ({ client, queue, start }) => {
    start((task) => task.payload);
    const values = [
      { to: "ada", n: [1, 2.5, null, true] },
      "grüße",
      7,
      null,
      [],
      Buffer.alloc(0),
      Buffer.from([0, 255, 254]),
      Buffer.alloc(1 << 20, "x"),
    ];
    for (const value of values) {
      const { id } = await queue.enqueue(value);
      assert.deepEqual(await soon(client.result(id)), value);
      assert.deepEqual((await client.get(id)).payload, value);
    }
  }));

test("a task carries what it was given", () =>
  onBench(async ({ name, queue, start }) => {
    const seen = signal<Task>();
    const before = Date.now() - 5_000;
    const enqueued = await queue.enqueue(1, {
      priority: 9,
      orderingKey: "customer-7",
      maxAttempts: 4,
      timeoutMs: 60_000,
      tags: ["red", "blue"],
      metadata: { region: "zh" },
      traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    });
    assert.equal(enqueued.replayed, false);
    start((task) => seen.resolve(task));
    const task = await soon(seen.promise);
    assert.equal(task.id, enqueued.id);
    assert.equal(task.queue, name);
    assert.deepEqual([task.priority, task.attempt, task.maxAttempts], [9, 1, 4]);
    assert.equal(task.orderingKey, "customer-7");
    assert.deepEqual([...task.tags].sort(), ["blue", "red"]);
    assert.deepEqual(task.metadata, { region: "zh" });
    assert.match(task.traceparent, /^00-0af765/);
    assert.ok(task.createdAt !== undefined && task.createdAt.getTime() > before);
  }));

test("the higher priority is first", () =>
  onBench(async ({ queue, start }) => {
    // What one call enqueues is in one partition, and priorities hold within each.
    await queue.enqueueMany([1, 9, 5].map((priority) => ({ payload: priority, priority })));
    const seen: number[] = [];
    const { worker } = start((task) => void seen.push(task.payload), { concurrency: 1 });
    await until(() => worker.completed === 3);
    assert.deepEqual(seen, [9, 5, 1]);
  }));

test("a unique key is enqueued once", () =>
  onBench(async ({ queue }) => {
    const options = { uniqueKey: "invoice-7", uniqueWindowMs: 3_600_000 };
    const first = await queue.enqueue(1, options);
    const second = await queue.enqueue(2, options);
    assert.deepEqual([first.replayed, second.replayed], [false, true]);
    assert.equal(first.id, second.id);
  }));

test("a delayed task is not early", () =>
  onBench(async ({ client, queue, start }) => {
    start(() => Date.now());
    const due = new Date(Date.now() + 500);
    const byDelay = await queue.enqueue(1, { delayMs: 500 });
    const byTime = await queue.enqueue(1, { runAt: due });
    assert.equal((await client.get(byDelay.id)).state, "delayed");
    for (const { id } of [byDelay, byTime]) {
      assert.ok((await soon(client.result<number>(id))) >= due.getTime() - 10);
    }
  }));

test("a chain runs in order", () =>
  onBench(async ({ client, queue, start }) => {
    const chain: NewTask[] = [
      { payload: "extract" },
      { payload: "transform", after: ["#0"] },
      { payload: "load", after: ["#1", "#0"] },
    ];
    const outcomes = await queue.enqueueMany(chain);
    const last = await queue.enqueue("tell", { after: [outcomes[2]!.id] });
    assert.equal((await client.get(last.id)).state, "waiting");
    const seen: string[] = [];
    start((task) => void seen.push(task.payload));
    await soon(client.wait(last.id));
    assert.deepEqual(seen, ["extract", "transform", "load", "tell"]);
  }));

test("enqueueing waits for room", () =>
  onBench(async ({ name, queue }) => {
    const small = new Client(URL, TOKEN, { waitingTasksMax: 10, waitingBytesMax: 1000 });
    await soon(Promise.all(Array.from({ length: 200 }, (_, n) => small.queue(name).enqueue(n))));
    await small.close();
    assert.equal((await queue.info()).counts.ready, 200);
  }));

test("a failure is tried again", () =>
  onBench(async ({ client, queue, start }) => {
    const warnings: string[] = [];
    start(
      (task) => {
        if (task.attempt < 3) {
          throw new RangeError(`not yet, attempt ${task.attempt}`);
        }
        return "done";
      },
      { onWarning: (message) => warnings.push(message) },
    );
    const { id } = await queue.enqueue(1, { maxAttempts: 5, retry: AT_ONCE });
    const task = await soon(client.wait(id));
    assert.deepEqual([task.state, task.result, task.attempts], ["completed", "done", 3]);
    assert.deepEqual(
      task.history.map((attempt) => attempt.outcome),
      ["failed", "failed", "completed"],
    );
    assert.equal(task.history[0]?.error, "RangeError: not yet, attempt 1");
    assert.equal(warnings.length, 2);
  }));

test("the last failure is the end", () =>
  onBench(async ({ client, queue, start }) => {
    start(() => Promise.reject(new Error("never")));
    const { id } = await queue.enqueue(1, { maxAttempts: 2, retry: AT_ONCE });
    await assert.rejects(soon(client.result(id)), (error) => {
      assert.ok(error instanceof TaskFailed);
      assert.match(error.message, /never/);
      return true;
    });
    assert.equal((await client.get(id)).attempts, 2);
  }));

test("a permanent error is not tried again", () =>
  onBench(async ({ client, queue, start }) => {
    start(() => {
      throw new PermanentError("no such customer");
    });
    const { id } = await queue.enqueue(1, { maxAttempts: 5 });
    const task = await soon(client.wait(id));
    assert.deepEqual([task.state, task.attempts], ["dead", 1]);
    assert.match(task.error, /no such customer/);
  }));

test("not now counts and not yet does not", () =>
  onBench(async ({ client, queue, start }) => {
    const attempts: Record<string, number[]> = { retry: [], snooze: [] };
    start((task) => {
      const seen = attempts[task.payload]!;
      seen.push(task.attempt);
      if (seen.length < 3) {
        throw task.payload === "retry" ? new Retry(20, "busy") : new Snooze(20);
      }
    });
    for (const kind of ["retry", "snooze"]) {
      const { id } = await queue.enqueue(kind, { maxAttempts: 5 });
      assert.equal((await soon(client.wait(id))).state, "completed");
    }
    assert.deepEqual(attempts, { retry: [1, 2, 3], snooze: [1, 1, 1] });
  }));

test("a result that is refused fails the attempt", () =>
  onBench(async ({ client, queue, start }) => {
    start(() => Buffer.alloc(3 << 20));
    const { id } = await queue.enqueue(1, { maxAttempts: 1 });
    await assert.rejects(soon(client.result(id)), /the result was refused/);
  }));

test("a cancelled task aborts its handler", () =>
  onBench(async ({ client, queue, start }) => {
    const started = signal();
    const stopped = signal();
    start(async (task) => {
      started.resolve();
      await aborted(task.signal);
      stopped.resolve();
    });
    const { id } = await queue.enqueue(1);
    await soon(started.promise);
    assert.equal((await client.cancel(id)).state, "cancelled");
    await soon(stopped.promise);
    await assert.rejects(client.result(id), TaskCancelled);
  }));

test("an attempt that takes too long loses its lease", () =>
  onBench(async ({ client, queue, start }) => {
    const stopped = signal();
    start(async (task) => {
      if (task.attempt === 1) {
        await aborted(task.signal);
        stopped.resolve();
        return "first";
      }
      return "second";
    });
    const { id } = await queue.enqueue(1, { timeoutMs: 300, maxAttempts: 2, retry: AT_ONCE });
    assert.equal(await soon(client.result(id)), "second");
    await soon(stopped.promise);
  }));

test("a blocked loop loses the lease and the handler is told", () =>
  onBench(async ({ client, queue, start }) => {
    const stopped = signal();
    start(
      async (task) => {
        if (task.attempt > 1) {
          return "second";
        }
        // No heartbeat is sent meanwhile.
        for (const endMs = performance.now() + 1500; performance.now() < endMs; );
        await aborted(task.signal);
        stopped.resolve();
        return "first";
      },
      { leaseMs: 500 },
    );
    // Those that expire while the loop is blocked count too.
    const { id } = await queue.enqueue(1, { maxAttempts: 20, retry: AT_ONCE });
    assert.equal(await soon(client.result(id)), "second");
    await soon(stopped.promise);
    assert.equal((await client.get(id)).history[0]?.outcome, "lease_expired");
  }));

test("heartbeats keep a lease", () =>
  onBench(async ({ client, queue, start }) => {
    const { worker } = start(
      async (task) => {
        await sleep(2_500);
        return task.attempt;
      },
      { leaseMs: 600 },
    );
    const { id } = await queue.enqueue(1);
    assert.equal(await soon(client.result(id)), 1);
    assert.equal((await client.get(id)).attempts, 1);
    // At least one in each third of a lease, or almost.
    assert.ok(worker.heartbeatsSent >= 8, `${worker.heartbeatsSent} heartbeats`);
  }));

test("heartbeats follow the lease of each queue", () =>
  onBench(async ({ client, name, queue }) => {
    const short = client.queue(`${name}-short`);
    await queue.put({ leaseMs: 3_600_000 });
    await short.put({ leaseMs: 600 });
    const goOn = signal();
    const worker = client.worker([name, short.name], async (task) => {
      await goOn.promise;
      return task.attempt;
    });
    const running = worker.run();
    const enqueued = [await queue.enqueue(1), await queue.enqueue(2), await short.enqueue(3)];
    // Three leases have passed then, as those of an hour need no heartbeat.
    await until(() => worker.heartbeatsSent >= 9);
    goOn.resolve();
    for (const { id } of enqueued) {
      assert.equal(await soon(client.result(id)), 1);
    }
    worker.stop();
    await soon(running);
  }));

test("a result that no message takes fails the attempt", () =>
  onBench(async ({ client, queue, start }) => {
    start(() => Buffer.alloc(9 << 20));
    const { id } = await queue.enqueue(1, { maxAttempts: 1 });
    await assert.rejects(soon(client.result(id)), /more than a message takes/);
  }));

test("waiting has an end", () =>
  onBench(async ({ client, queue }) => {
    const { id } = await queue.enqueue(1);
    await assert.rejects(client.wait(id, { timeoutMs: 200 }), TimedOut);
  }));

test("a stop finishes what runs", () =>
  onBench(async ({ client, queue, start }) => {
    const started = signal();
    const goOn = signal();
    const { worker, running } = start(
      async () => {
        started.resolve();
        await goOn.promise;
        return "finished";
      },
      { concurrency: 1 },
    );
    const first = await queue.enqueue(1);
    await soon(started.promise);
    const others = await queue.enqueueMany(Array.from({ length: 5 }, (_, n) => ({ payload: n })));
    worker.stop();
    goOn.resolve();
    await soon(running);
    assert.equal((await client.get(first.id)).result, "finished");
    for (const { id } of others) {
      const task = await client.get(id);
      assert.deepEqual([task.state, task.attempts], ["ready", 0]);
    }
  }));

test("a stop gives back what takes too long", () =>
  onBench(async ({ client, queue, start }) => {
    const allStarted = signal();
    let count = 0;
    const { worker, running } = start(
      async (task) => {
        count += 1;
        if (count === 5) {
          allStarted.resolve();
        }
        await aborted(task.signal);
      },
      { concurrency: 5, graceMs: 100 },
    );
    const enqueued = await queue.enqueueMany(Array.from({ length: 20 }, (_, n) => ({ payload: n })));
    await soon(allStarted.promise);
    worker.stop();
    await soon(running);
    for (const { id } of enqueued) {
      const task = await client.get(id);
      // A task that was given back is as if no worker had held it.
      assert.deepEqual([task.state, task.attempts], ["ready", 0]);
    }
  }));

test("a stop amid many tasks holds none back", () =>
  onBench(async ({ queue, start }) => {
    const { worker, running } = start(() => sleep(1), { concurrency: 64 });
    const enqueueing = Promise.all(Array.from({ length: 3000 }, (_, n) => queue.enqueue(n)));
    await until(() => worker.completed > 0);
    worker.stop();
    await soon(running);
    await soon(enqueueing);
    const { counts } = await queue.info();
    // What was pushed in the last moment is not held until its lease ends.
    assert.deepEqual([counts.leased, counts.delayed, counts.dead], [0, 0, 0]);
    assert.equal(counts.ready + counts.completed, 3000);
    assert.equal(counts.completed, worker.completed);
  }));

test("an abort signal stops gracefully too", () =>
  onBench(async ({ client, name, queue }) => {
    const started = signal();
    const controller = new AbortController();
    const work = client.work(
      name,
      async () => {
        started.resolve();
        await sleep(200);
        return "finished";
      },
      { signal: controller.signal },
    );
    const { id } = await queue.enqueue(1);
    await soon(started.promise);
    controller.abort();
    await soon(work);
    assert.equal((await client.get(id)).result, "finished");
  }));

test("a second signal gives back what still runs", () =>
  onBench(async ({ client, queue, start }) => {
    const allStarted = signal();
    let started = 0;
    const { running } = start(
      async (task) => {
        started += 1;
        if (started === 3) {
          allStarted.resolve();
        }
        await aborted(task.signal);
      },
      { signals: true, concurrency: 3, graceMs: 3_600_000 },
    );
    const enqueued = await queue.enqueueMany([1, 2, 3, 4].map((payload) => ({ payload })));
    await soon(allStarted.promise);
    process.kill(process.pid, "SIGTERM");
    process.kill(process.pid, "SIGINT");
    await soon(running);
    for (const { id } of enqueued) {
      const task = await client.get(id);
      assert.deepEqual([task.state, task.attempts], ["ready", 0]);
    }
  }));

test("a signal after a stop that nobody signalled is the first one", () =>
  onBench(async ({ client, queue, start }) => {
    const started = signal();
    const release = signal();
    const { worker, running } = start(
      async () => {
        started.resolve();
        await release.promise;
        return "finished";
      },
      { signals: true },
    );
    const { id } = await queue.enqueue(1);
    await soon(started.promise);
    worker.stop();
    const heard = new Promise((resolve) => process.once("SIGTERM", resolve));
    process.kill(process.pid, "SIGTERM");
    await soon(heard);
    release.resolve();
    await soon(running);
    assert.equal((await client.get(id)).result, "finished");
  }));

test("a signal stops when asked to", () =>
  onBench(async ({ client, queue, start }) => {
    const started = signal();
    const { running } = start(
      async () => {
        started.resolve();
        await sleep(200);
        return "finished";
      },
      { signals: true },
    );
    const { id } = await queue.enqueue(1);
    await soon(started.promise);
    process.kill(process.pid, "SIGTERM");
    await soon(running);
    assert.equal((await client.get(id)).result, "finished");
  }));
