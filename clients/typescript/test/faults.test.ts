/** What goes wrong: texts that no message takes, servers that say no for a while, lost connections. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Client,
  EgretError,
  type Enqueued,
  PermanentError,
  Retry,
  TaskFailed,
  type TaskOptions,
  Unauthenticated,
  Unavailable,
  UnknownOutcome,
  type Worker,
} from "egret";

import { type Produce, type Script, onScript, pb, taken, tear } from "./scripted.js";
import { URL, aborted, onBench, signal, soon, until } from "./server.js";

/** Half of a surrogate pair: JSON holds it, UTF-8 does not. */
const HALF = "\ud83d";
const LONG = "😀".repeat(8_000);

test("no error text stops a worker", () =>
  onBench(async ({ client, queue, start }) => {
    start(
      (task) => {
        switch (task.payload) {
          case "permanent":
            throw new PermanentError(HALF);
          case "unspeakable":
            throw Object.create(null);
          case "retry":
            if (task.attempt === 1) {
              throw new Retry(10, `busy with ${HALF}`);
            }
            return task.attempt;
          case HALF:
            throw new RangeError(`unknown ${task.payload}`);
          default:
            return HALF;
        }
      },
      {
        onWarning: () => {
          throw new Error("no log");
        },
      },
    );
    const errors = {
      [HALF]: "RangeError: unknown \ufffd",
      permanent: "PermanentError: \ufffd",
      unspeakable: "an error without a text",
    };
    for (const [payload, error] of Object.entries(errors)) {
      const { id } = await queue.enqueue(payload, { maxAttempts: 1 });
      await assert.rejects(soon(client.result(id)), TaskFailed);
      assert.equal((await client.get(id)).error, error);
    }
    for (const [payload, result] of Object.entries({ retry: 2, other: HALF })) {
      const { id } = await queue.enqueue(payload, { maxAttempts: 2 });
      assert.equal(await soon(client.result<string | number>(id)), result);
    }
  }));

test("what is no text is refused here", () =>
  onBench(async ({ client, queue }) => {
    const options: TaskOptions[] = [
      { uniqueKey: HALF },
      { orderingKey: HALF },
      { tags: [HALF] },
      { metadata: { [HALF]: "value" } },
      { metadata: { name: HALF } },
      { callbackUrl: HALF },
    ];
    for (const one of options) {
      await assert.rejects(queue.enqueue(1, one), /half of a surrogate pair/);
    }
    assert.throws(() => client.queue(HALF), /half of a surrogate pair/);
    assert.throws(() => client.queue(7 as unknown as string), /must be a string/);
    assert.ok((await soon(queue.enqueue(1))).id);
  }));

test("many long errors fit", () =>
  onBench(async ({ client, queue, start }) => {
    const together = signal();
    const { worker } = start(
      async () => {
        await together.promise;
        throw new Error(`x${LONG}`);
      },
      { concurrency: 700 },
    );
    const tasks = Array.from({ length: 700 }, (_, n) => ({ payload: n, maxAttempts: 1 }));
    const enqueued = await queue.enqueueMany(tasks);
    await until(() => worker.running === 700);
    together.resolve();
    for (const { id } of enqueued) {
      const { state, error } = await soon(client.wait(id));
      assert.equal(state, "dead");
      // No character is cut in two.
      assert.match(error, /^Error: x(😀)+$/u);
      const sizeBytes = Buffer.byteLength(error);
      assert.ok(sizeBytes > 7_990 && sizeBytes <= 8_000, `${sizeBytes} bytes`);
    }
  }));

test("a lost lease makes room when its handler has ended", () =>
  onBench(async ({ client, queue, start }) => {
    const lost = signal();
    const goOn = signal();
    let running = 0;
    let most = 0;
    start(
      async (task) => {
        running += 1;
        most = Math.max(most, running);
        if (task.payload === "stubborn") {
          await aborted(task.signal);
          lost.resolve();
          await goOn.promise;
        }
        running -= 1;
        return "done";
      },
      { concurrency: 1 },
    );
    await queue.enqueue("stubborn", { timeoutMs: 300, maxAttempts: 1 });
    await soon(lost.promise);
    const other = await queue.enqueue("other");
    await assert.rejects(client.wait(other.id, { timeoutMs: 300 }));
    goOn.resolve();
    assert.equal(await soon(client.result(other.id)), "done");
    assert.equal(most, 1);
  }));

/** Refuses so many tasks whose payload is "down", and takes all others. */
function refusing(state: { code: string; refusals: number }): Script {
  return {
    produce: (stream) => {
      let number = 0;
      stream.on("end", () => stream.end());
      stream.on("data", ({ tasks }: pb.ProduceRequest) => {
        const outcomes = tasks.map((task) => {
          const outcome = taken(number++);
          if (task.payload.toString() === "down" && state.refusals > 0) {
            state.refusals -= 1;
            return { ...outcome, id: "", error: { code: state.code, message: "not now", retryable: true } };
          }
          return outcome;
        });
        stream.write({ outcomes });
      });
    },
  };
}

const DOWN = Buffer.from("down");

test("a task that is not taken is sent again", () => {
  const state = { code: "", refusals: 0 };
  return onScript(refusing(state), async (connect) => {
    const client = connect();
    for (state.code of ["queue_partition_failed", "stopping"]) {
      state.refusals = 3;
      assert.ok((await soon(client.queue("any").enqueue(DOWN))).id);
      assert.equal(state.refusals, 0);
    }
    state.refusals = 3;
    const last = client.queue("any").enqueue(DOWN);
    await soon(client.close());
    assert.ok((await last).id);
  });
});

test("patience with what is not taken has an end", () => {
  const state = { code: "", refusals: 1_000_000 };
  return onScript(refusing(state), async (connect) => {
    const client = connect({ patienceMs: 300 });
    for (state.code of ["queue_partition_failed", "stopping"]) {
      await assert.rejects(soon(client.queue("any").enqueue(DOWN)), (error) => {
        assert.ok(error instanceof Unavailable && error.retryable);
        assert.equal(error.code, state.code);
        return true;
      });
    }
    await client.close();
  });
});

test("others find room beside what is not taken", () => {
  const state = { code: "queue_partition_failed", refusals: 1_000_000 };
  return onScript(refusing(state), async (connect) => {
    const client = connect({ waitingTasksMax: 8, patienceMs: 3_600_000 });
    const queue = client.queue("any");
    let refused = 0;
    const enqueue = async (): Promise<Enqueued | undefined> => {
      try {
        return await queue.enqueue(DOWN);
      } catch (error) {
        assert.ok(error instanceof Unavailable);
        refused += 1;
        return undefined;
      }
    };
    const down = Array.from({ length: 20 }, enqueue);
    for (let n = 0; n < 20; n += 1) {
      await soon(queue.enqueue(Buffer.from("up")));
    }
    // A quarter of the places may wait for better times.
    assert.equal(refused, 18);
    state.refusals = 0;
    const enqueued = (await soon(Promise.all(down))).filter((one) => one !== undefined);
    assert.equal(enqueued.length, 2);
    await client.close();
  });
});

/** The connection is lost once, so long after a task was taken, and is there again at once. */
async function lostOnce(
  options: TaskOptions,
  script: Omit<Script, "produce"> & { lastsMs?: number; refuses?: boolean } = {},
): Promise<{ outcome: Enqueued | EgretError; seen: number }> {
  let streams = 0;
  let seen = 0;
  const error = script.refuses ? { code: "queue_draining", message: "draining", retryable: false } : undefined;
  const produce = (stream: Produce) => {
    streams += 1;
    const first = streams === 1;
    stream.on("end", () => stream.end());
    stream.on("data", ({ tasks }: pb.ProduceRequest) => {
      seen += tasks.length;
      if (first) {
        setTimeout(() => tear(stream), script.lastsMs ?? 0);
      } else {
        stream.write({ outcomes: [{ number: 0, id: error ? "" : "first", replayed: !error, error }] });
      }
    });
  };
  let outcome: Enqueued | EgretError | undefined;
  await onScript({ ...script, produce }, async (connect) => {
    const client = connect();
    outcome = await soon(client.queue("any").enqueue(1, options)).catch((error) => {
      assert.ok(error instanceof EgretError, String(error));
      return error;
    });
    await client.close();
  });
  assert.ok(outcome !== undefined);
  return { outcome, seen };
}

test("within its window a task is sent again", async () => {
  const { outcome, seen } = await lostOnce({ uniqueKey: "one", uniqueWindowMs: 60_000 });
  assert.deepEqual([outcome, seen], [{ id: "first", replayed: true }, 2]);
});

test("after its window a task is in doubt", async () => {
  const { outcome, seen } = await lostOnce({ uniqueKey: "one", uniqueWindowMs: 200 }, { lastsMs: 200 });
  assert.ok(outcome instanceof UnknownOutcome, String(outcome));
  assert.match(outcome.message, /remembered for 200 ms only/);
  assert.equal(seen, 1);
});

test("the window of the queue counts too", async () => {
  const long = await lostOnce({ uniqueKey: "one" }, { uniqueWindowMs: () => 60_000 });
  assert.deepEqual([long.outcome, long.seen], [{ id: "first", replayed: true }, 2]);
  const short = await lostOnce({ uniqueKey: "one" }, { uniqueWindowMs: () => 50 });
  assert.ok(short.outcome instanceof UnknownOutcome, String(short.outcome));
  assert.equal(short.seen, 1);
});

test("a window that is not told is no window", async () => {
  const { outcome, seen } = await lostOnce({ uniqueKey: "one" }, { uniqueWindowMs: () => undefined });
  assert.ok(outcome instanceof UnknownOutcome, String(outcome));
  assert.match(outcome.message, /may be forgotten/);
  assert.equal(seen, 1);
});

test("a refusal of the second try says nothing of the first", async () => {
  const { outcome } = await lostOnce({ uniqueKey: "one", uniqueWindowMs: 60_000 }, { refuses: true });
  assert.ok(outcome instanceof UnknownOutcome, String(outcome));
});

test("closing does not wait for ever", () =>
  onScript(
    {
      // It takes everything, and does not end.
      produce: (stream) => stream.on("data", () => stream.write({ outcomes: [taken(0)] })),
    },
    async (connect) => {
      const client = connect();
      await soon(client.queue("any").enqueue(1));
      await soon(client.close());
    },
  ));

/** Hands out one task and never says anything again. */
const SILENT: Script = {
  work: (stream) => {
    stream.once("data", () => {
      stream.write(pb.WorkResponse.fromPartial({ welcome: { leaseMs: 300 } }));
      const task = { id: "one", lease: Buffer.from("one"), leaseMs: 300 };
      stream.write(pb.WorkResponse.fromPartial({ tasks: [task] }));
    });
  },
};

for (const connected of [true, false]) {
  test(`a lease that nobody acknowledges is lost, ${connected ? "on" : "without"} a connection`, () =>
    onScript(SILENT, async (connect, stop) => {
      const client = connect();
      const started = signal();
      const stopped = signal();
      const worker: Worker = client.worker("any", async (task) => {
        started.resolve();
        await aborted(task.signal);
        stopped.resolve();
      });
      const running = worker.run();
      await soon(started.promise);
      if (!connected) {
        stop();
      }
      await soon(stopped.promise);
      worker.stop();
      await soon(running);
      await client.close();
    }));
}

test("a stop after the end keeps no program from ending", async () => {
  const client = new Client(URL, "wrong");
  const worker = client.worker("any", () => undefined);
  await assert.rejects(soon(worker.run()), Unauthenticated);
  await client.close();
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const before = timers();
  worker.stop();
  assert.equal(timers(), before);
});

test("failed partitions are named with a queue and with a list", () =>
  onScript({ uniqueWindowMs: () => 1, unavailablePartitions: [3, 1] }, async (connect) => {
    const client = connect();
    const queue = client.queue("any");
    assert.deepEqual((await soon(queue.info())).unavailablePartitions, [3, 1]);
    const listing = queue.tasks();
    const ids: string[] = [];
    for await (const task of listing) {
      ids.push(task.id);
      const shown = JSON.parse(JSON.stringify(task));
      assert.deepEqual([shown.id, shown.state, shown.tags], [task.id, "ready", []]);
    }
    assert.deepEqual(ids, ["a", "b"]);
    assert.deepEqual(listing.unavailablePartitions, [1, 3]);
    await client.close();
  }));

test("what JSON has as null is refused before it is sent", () =>
  onScript({ produce: (stream) => stream.on("data", () => stream.write({ outcomes: [taken(0)] })) }, async (connect) => {
    const client = connect();
    const queue = client.queue("any");
    for (const value of [NaN, { speed: Infinity }, [1, [-Infinity]], { at: new Date(NaN) }]) {
      await assert.rejects(queue.enqueue(value), { name: "TypeError", message: /cannot be sent as JSON/ });
    }
    assert.ok((await soon(queue.enqueue({ none: null, text: "null" }))).id);
    await client.close();
  }));
