/** A server that does what a test says, where Egret itself would not do it, or not when it is wanted. */

import { Server, ServerCredentials, type ServerDuplexStream, status } from "@grpc/grpc-js";

import { Client, type ClientOptions } from "egret";

// Private to the client, which is why it is not found by the client's name.
import * as pb from "../dist/generated/queue.js";

export { pb };

export type Produce = ServerDuplexStream<pb.ProduceRequest, pb.ProduceResponse>;
export type Work = ServerDuplexStream<pb.WorkRequest, pb.WorkResponse>;

/** What a test sets; what it leaves out ends with `UNIMPLEMENTED`. */
export interface Script {
  produce?: (stream: Produce) => void;
  work?: (stream: Work) => void;
  /** The window of every queue, or none to refuse to tell. */
  uniqueWindowMs?: () => number | undefined;
  /** Partitions that have failed, for queues and lists. */
  unavailablePartitions?: number[];
}

/** Runs a test against a server of its own. */
export async function onScript(
  script: Script,
  run: (connect: (options?: ClientOptions) => Client, stop: () => void) => Promise<void>,
): Promise<void> {
  const server = new Server();
  server.addService(pb.QueueService, {
    produce: (stream: Produce) => {
      stream.sendMetadata(stream.metadata);
      script.produce?.(stream);
    },
    work: (stream: Work) => {
      stream.sendMetadata(stream.metadata);
      script.work?.(stream);
    },
    getQueue: (({ request }, answer) => {
      const uniqueWindowMs = script.uniqueWindowMs?.();
      if (uniqueWindowMs === undefined) {
        answer({ code: status.PERMISSION_DENIED, details: "no" });
      } else {
        const { unavailablePartitions } = script;
        const settings = { uniqueWindowMs };
        answer(null, pb.QueueInfo.fromPartial({ name: request.name, settings, unavailablePartitions }));
      }
    }) as pb.QueueServer["getQueue"],
    listTasks: (({ request }, answer) => {
      const [id, nextCursor] = request.cursor === "" ? ["a", "more"] : ["b", ""];
      const tasks = [{ id, state: pb.TaskState.READY }];
      const { unavailablePartitions } = script;
      answer(null, pb.ListTasksResponse.fromPartial({ tasks, nextCursor, unavailablePartitions }));
    }) as pb.QueueServer["listTasks"],
  } as unknown as pb.QueueServer);
  const port = await new Promise<number>((resolve, reject) => {
    const credentials = ServerCredentials.createInsecure();
    server.bindAsync("127.0.0.1:0", credentials, (error, bound) => (error ? reject(error) : resolve(bound)));
  });
  try {
    await run(
      (options) => new Client(`http://127.0.0.1:${port}`, "token", options),
      () => server.forceShutdown(),
    );
  } finally {
    server.forceShutdown();
  }
}

/** Ends a stream as a connection that is lost does. */
export function tear(stream: Produce): void {
  stream.emit("error", { code: status.UNAVAILABLE, details: "torn off" });
}

/** The answer that a task is taken. */
export function taken(number: number): pb.Enqueued {
  return { number, id: `task-${number}`, replayed: false, error: undefined };
}
