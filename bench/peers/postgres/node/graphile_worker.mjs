// Measures graphile-worker, the npm package; see ../README.md.

import { makeWorkerUtils, run, Logger } from "graphile-worker";
import { main } from "./protocol.mjs";

const quiet = new Logger(() => () => {});
let preset;
let utils;

/** The settings of the performance page of its manual: batches all the way. */
function options(call) {
  const worker = {
    connectionString: call.store,
    maxPoolSize: call.setting("pool", call.measure === "enqueue_64" ? 50 : 25),
    concurrentJobs: call.setting("concurrency", call.throughput ? 24 : 8),
    pollInterval: call.setting("poll", 100),
    logger: quiet,
  };
  if (call.throughput) {
    worker.localQueue = { size: call.setting("local", 500) };
    worker.completeJobBatchDelay = call.setting("delay", 0);
    worker.failJobBatchDelay = call.setting("delay", 0);
  }
  return { worker };
}

await main({
  name: "graphile-worker",
  unfinished: "graphile_worker._private_jobs WHERE true",
  attempts: null, // a finished job is deleted, and its attempts with it
  callers: 64,

  async connect(call) {
    preset = options(call);
    utils = await makeWorkerUtils({ preset });
  },

  setUp: () => utils.migrate(),

  add: (payload) => utils.addJob("noop", payload),

  addAll: (payloads) => utils.addJobs(payloads.map((payload) => ({ identifier: "noop", payload }))),

  addDue: (payloads) =>
    utils.addJobs(
      payloads.map((payload) => ({ identifier: "noop", payload, runAt: new Date(payload.at) })),
    ),

  // It connects, and takes its first jobs, in `run`.
  async prepare() {},

  async work(call, tally) {
    const noop = (payload, helpers) => {
      if (!tally.run(payload, helpers.job.attempts)) throw new Error("not yet");
    };
    await run({ preset, taskList: { noop }, parsedCronItems: [] });
  },
});
