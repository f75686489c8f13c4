/** Looking, operating, schedules, changes, and errors. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { inspect } from "node:util";

import {
  Client,
  Conflict,
  EgretError,
  EnqueueRefused,
  InvalidRequest,
  LimitReached,
  NotFound,
  PermanentError,
  type State,
  type TaskInfo,
  Unauthenticated,
  Unavailable,
} from "egret";

import { TOKEN, URL, onBench, soon, until } from "./server.js";

/** Asserts that a promise is rejected with an error of this class, code and retryability. */
async function refused(
  what: Promise<unknown>,
  kind: typeof EgretError,
  expected: { code?: string; retryable?: boolean } = {},
): Promise<void> {
  await assert.rejects(soon(what), (error) => {
    assert.ok(error instanceof kind, String(error));
    assert.equal(error.code, expected.code ?? error.code);
    assert.equal(error.retryable, expected.retryable ?? error.retryable);
    return true;
  });
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
  }
  return found;
}

test("listing goes through all pages", () =>
  onBench(async ({ queue }) => {
    await queue.enqueueMany(
      Array.from({ length: 250 }, (_, n) => ({ payload: n, tags: n % 2 === 0 ? ["even"] : [] })),
    );
    const listed: TaskInfo[] = await all(queue.tasks({ page: 40 }));
    assert.deepEqual([listed.length, new Set(listed.map((task) => task.id)).size], [250, 250]);
    const even = await all(queue.tasks({ state: "ready", tag: "even" }));
    assert.equal(even.length, 125);
    assert.deepEqual(even[0]?.tags, ["even"]);
    assert.deepEqual(await all(queue.tasks({ state: "dead" })), []);
  }));

test("a brief look leaves the payload out", () =>
  onBench(async ({ client, queue }) => {
    const { id } = await queue.enqueue({ n: 1 });
    assert.deepEqual((await client.get(id)).payload, { n: 1 });
    assert.equal((await client.get(id, { brief: true })).payload, undefined);
  }));

test("cancel, requeue, delete", () =>
  onBench(async ({ client, queue }) => {
    const { id } = await queue.enqueue(1);
    assert.equal((await client.cancel(id)).state, "cancelled");
    assert.equal((await client.requeue(id)).state, "ready");
    await client.delete(id);
    await refused(client.get(id), NotFound, { code: "task_not_found", retryable: false });
  }));

test("settings are kept and changed one by one", () =>
  onBench(async ({ client, name, queue }) => {
    await queue.put({
      maxAttempts: 7,
      leaseMs: 12_500,
      concurrency: 3,
      ratePerSecond: 99.5,
      retry: { backoff: "linear", baseMs: 2_000, maxMs: 60_000, jitter: "equal" },
      completed: { ageMs: 3_600_000, count: 500 },
    });
    const { settings } = await queue.put({ concurrency: 0 });
    assert.deepEqual([settings.maxAttempts, settings.leaseMs], [7, 12_500]);
    assert.deepEqual([settings.concurrency, settings.ratePerSecond], [0, 99.5]);
    assert.deepEqual(settings.retry, { backoff: "linear", baseMs: 2_000, maxMs: 60_000, jitter: "equal" });
    assert.deepEqual(settings.completed, { ageMs: 3_600_000, count: 500 });
    assert.ok((await client.queues()).some((info) => info.name === name));
  }));

test("pause and resume", () =>
  onBench(async ({ client, queue, start }) => {
    await queue.put();
    assert.equal((await queue.pause()).paused, true);
    start(() => undefined);
    const { id } = await queue.enqueue(1);
    await refused(client.wait(id, { timeoutMs: 300 }), EgretError);
    assert.equal((await client.get(id)).state, "ready");
    assert.equal((await queue.resume()).paused, false);
    assert.equal(await soon(client.result(id)), null);
  }));

test("a draining queue takes nothing", () =>
  onBench(async ({ queue }) => {
    await queue.put();
    assert.equal((await queue.drain()).draining, true);
    await refused(queue.enqueue(1), EgretError, { code: "queue_draining" });
    assert.equal((await queue.resume()).draining, false);
    await queue.enqueue(1);
  }));

test("dead tasks are put back and purged", () =>
  onBench(async ({ client, queue, start }) => {
    const { worker, running } = start(() => {
      throw new PermanentError("no");
    });
    const enqueued = await queue.enqueueMany([{ payload: 0 }, { payload: 1 }, { payload: 2 }]);
    for (const { id } of enqueued) {
      assert.equal((await soon(client.wait(id))).state, "dead");
    }
    worker.stop();
    await soon(running);
    assert.equal(await queue.requeueDead(2), 2);
    const { counts } = await queue.info();
    assert.deepEqual([counts.ready, counts.dead], [2, 1]);
    assert.equal(await queue.purge(["dead"]), 1);
    assert.equal(await queue.purge(), 2);
  }));

test("a queue with tasks is deleted by force only", () =>
  onBench(async ({ queue }) => {
    await queue.enqueue(1);
    await refused(queue.delete(), EgretError, { code: "queue_in_use" });
    await queue.delete({ force: true });
    await refused(queue.info(), NotFound, { code: "queue_not_found" });
  }));

test("a schedule ticks until it is paused", () =>
  onBench(async ({ client, name, queue, start }) => {
    const seen: unknown[] = [];
    start((task) => void seen.push(task.payload));
    const schedule = client.schedule(`every-second-${randomUUID().slice(0, 8)}`);
    const made = await schedule.put({
      cron: "* * * * * *",
      queue: queue.name,
      task: { payload: { report: "daily" }, tags: ["scheduled"] },
      timeZone: "Europe/Zurich",
      missed: "skip",
    });
    assert.deepEqual([made.queue, made.missed, made.paused], [name, "skip", false]);
    assert.deepEqual(made.payload, { report: "daily" });
    assert.ok(made.nextAt instanceof Date);
    await until(() => seen.length >= 2);
    assert.deepEqual(seen[0], { report: "daily" });
    assert.equal((await schedule.pause()).paused, true);
    const info = await schedule.info();
    assert.ok(info.lastAt instanceof Date);
    assert.equal(info.waiting, false);
    assert.equal((await client.get(info.lastTask)).id, info.lastTask);
    assert.ok((await client.schedules()).some((other) => other.name === schedule.name));
    assert.equal((await schedule.resume()).paused, false);
    await schedule.delete();
    await refused(schedule.info(), NotFound);
  }));

test("a bad cron expression is refused", () =>
  onBench(async ({ client, name }) => {
    const bad = client.schedule("bad").put({ cron: "every tuesday", queue: name, task: { payload: 1 } });
    await refused(bad, InvalidRequest, { retryable: false });
  }));

test("changes are told", () =>
  onBench(async ({ client, name, queue, start }) => {
    const changes = client.watch({ queues: [name] });
    await soon(changes.open);
    const { id } = await queue.enqueue(1);
    start(() => undefined);
    const states: State[] = [];
    const read = async () => {
      for await (const change of changes) {
        assert.deepEqual([change.id, change.queue], [id, name]);
        states.push(change.state);
        if (change.state === "completed") {
          return;
        }
      }
    };
    await soon(read());
    assert.deepEqual(states, ["ready", "leased", "completed"]);
    assert.equal(changes.missed, 0);
  }));

test("closing a watch ends the loop", () =>
  onBench(async ({ client, name }) => {
    const changes = client.watch({ queues: [name], states: ["dead"] });
    const reading = all(changes);
    await soon(changes.open);
    changes.close();
    assert.deepEqual(await soon(reading), []);
  }));

test("a wrong token is said at every door", () =>
  onBench(async () => {
    const stranger = new Client(URL, "wrong");
    const calls = [
      () => stranger.get("any"),
      () => stranger.queue("any").enqueue(1),
      () => stranger.queue("any").enqueueMany([{ payload: 1 }]),
      () => stranger.work("any", () => undefined),
      () => stranger.watch().open,
    ];
    for (const call of calls) {
      await refused(call(), Unauthenticated, { retryable: false });
    }
    await stranger.close();
  }));

test("a queue that is not there", () =>
  onBench(async ({ client, name }) => {
    const nobody = client.queue("nobody");
    await refused(nobody.enqueue(1), NotFound, { code: "queue_not_found" });
    await refused(nobody.info(), NotFound, { code: "queue_not_found" });
    await refused(client.work([name, "nobody"], () => undefined), NotFound, { code: "queue_not_found" });
  }));

test("one bad task does not harm the others", () =>
  onBench(async ({ queue }) => {
    const outcomes = await soon(
      Promise.allSettled([queue.enqueue(1), queue.enqueue(2, { priority: 10 }), queue.enqueue(3)]),
    );
    assert.deepEqual(
      outcomes.map((outcome) => outcome.status),
      ["fulfilled", "rejected", "fulfilled"],
    );
  }));

test("a code is the same class at every door", () =>
  onBench(async ({ client, queue }) => {
    const wrong = { priority: 10 };
    await refused(queue.enqueue(1, wrong), InvalidRequest, { code: "invalid_request" });
    await refused(client.get("x"), InvalidRequest, { code: "invalid_request" });
    const many = await queue.enqueueMany([{ payload: 1, ...wrong }]).catch((error) => error);
    assert.ok(many instanceof EnqueueRefused && many.outcomes[0] instanceof InvalidRequest);
    const tooMany = Array.from({ length: 1001 }, (_, payload) => ({ payload }));
    await refused(queue.enqueueMany(tooMany), LimitReached, { code: "limit_exceeded" });
    const { id } = await queue.enqueue(1);
    await queue.drain();
    await refused(queue.enqueue(1), Conflict, { code: "queue_draining", retryable: false });
    await client.cancel(id);
    await refused(client.cancel(id), Conflict, { code: "task_wrong_state" });
  }));

test("an atomic call enqueues all tasks or none", () =>
  onBench(async ({ queue }) => {
    const wrong = [{ payload: 1 }, { payload: 2, priority: 10 }];
    const error = await queue.enqueueMany(wrong, { atomic: true }).catch((reason) => reason);
    assert.ok(error instanceof EnqueueRefused);
    assert.ok(error.outcomes.every((outcome) => outcome instanceof EgretError));
    assert.equal((await queue.info()).counts.ready, 0);
    await queue.enqueueMany([{ payload: 1 }, { payload: 2 }], { atomic: true });
    assert.equal((await queue.info()).counts.ready, 2);
  }));

test("enqueueMany says which were refused", () =>
  onBench(async ({ queue }) => {
    await assert.rejects(queue.enqueueMany([{ payload: 1 }, { payload: 2, priority: 10 }]), (error) => {
      assert.ok(error instanceof EnqueueRefused);
      const kinds = error.outcomes.map((outcome) => outcome instanceof EgretError);
      assert.deepEqual(kinds, [false, true]);
      return true;
    });
  }));

test("a payload that is too large ends nobody else's stream", () =>
  onBench(async ({ queue }) => {
    const large = queue.enqueue(Buffer.alloc(2 << 20));
    // More than a message takes.
    const larger = queue.enqueue(Buffer.alloc(8 << 20));
    const outcomes = await soon(Promise.allSettled([queue.enqueue(1), large, larger, queue.enqueue(4)]));
    assert.deepEqual(
      outcomes.map((outcome) => outcome.status),
      ["fulfilled", "rejected", "rejected", "fulfilled"],
    );
    await refused(large, LimitReached);
    await refused(larger, LimitReached);
  }));

test("what cannot be sent is refused here", () =>
  onBench(async ({ queue }) => {
    await assert.rejects(queue.enqueue(() => 1), TypeError);
    await assert.rejects(queue.enqueue(1n), TypeError);
    await assert.rejects(queue.enqueue(1, { delayMs: -1 }), RangeError);
    await assert.rejects(queue.enqueue(1, { priority: 0.5 }), RangeError);
  }));

test("a misspelt option is refused here", () =>
  onBench(async ({ client, name, queue }) => {
    // As from JavaScript, where no compiler tells.
    const odd = { delay: 5 } as object;
    const task = { payload: 1, ...odd };
    const calls = [
      () => queue.enqueue(1, odd),
      () => queue.enqueueMany([task]),
      () => queue.enqueue(1, { retry: { backoff: "fixed", baseMs: 1, ...odd } }),
      () => queue.put(odd),
      () => client.schedule("odd").put({ cron: "@daily", queue: name, task }),
      () => client.work(name, () => undefined, odd),
      async () => new Client(URL, TOKEN, odd),
    ];
    for (const call of calls) {
      await assert.rejects(call(), { name: "TypeError", message: /has no option "delay", only / });
    }
  }));

test("no message shows a password of the url", () => {
  for (const rest of ["ftp://?", "http://?", "http://? here", "?"]) {
    const url = rest.replace("?", "admin:TOPSECRET@host");
    assert.throws(
      () => new Client(url, TOKEN),
      (error) => error instanceof TypeError && !inspect(error).includes("TOPSECRET"),
    );
  }
});

test("a server that is not there", () =>
  onBench(async () => {
    // Nothing listens on the discard port.
    const nobody = new Client("http://127.0.0.1:9", TOKEN, { patienceMs: 500 });
    await refused(nobody.get("any"), Unavailable, { retryable: true });
    await refused(nobody.queue("any").enqueue(1), Unavailable, { code: "unreachable" });
    await nobody.close();
  }));
