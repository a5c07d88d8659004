// Measures pg-boss; see ../README.md.

import { PgBoss } from "pg-boss";
import { main } from "./protocol.mjs";

const QUEUE = "bench";
let boss;

await main({
  name: "pg-boss",
  unfinished: "pgboss.job WHERE state <> 'completed'",
  attempts: "SELECT sum(retry_count + 1) FROM pgboss.job",
  callers: 64,

  async connect(call) {
    boss = new PgBoss({
      connectionString: call.store,
      max: call.setting("pool", call.measure === "enqueue_64" ? 50 : 10),
      // Neither cron nor maintenance is measured.
      schedule: false,
      supervise: false,
      migrate: call.measure === "setup",
      // A notification for each job would slow the others.
      useListenNotify: call.measure === "latency",
    });
    boss.on("error", (error) => console.error(error));
    await boss.start();
  },

  setUp: () => boss.createQueue(QUEUE, { retryLimit: 3, retryDelay: 0, retryBackoff: false }),

  add: (payload) => boss.send(QUEUE, payload),

  addAll: (payloads) => boss.insert(QUEUE, payloads.map((data) => ({ data }))),

  addDue: (payloads) =>
    boss.insert(QUEUE, payloads.map((data) => ({ data, startAfter: new Date(data.at) }))),

  async prepare(call) {
    if (call.measure === "latency") await boss.updateQueue(QUEUE, { notify: true });
  },

  async work(call, tally) {
    const options = {
      batchSize: call.setting("batch", call.throughput ? 1000 : 50),
      // One for retry_path, where a batch is settled in two steps.
      localConcurrency: call.setting("concurrency", call.measure.startsWith("drain") ? 2 : 1),
      pollingIntervalSeconds: 0.5, // the least it allows
      burstWhenBatchFull: true,
      includeMetadata: call.measure === "retry_path",
    };
    await boss.work(QUEUE, options, async (jobs) => {
      const failed = jobs.filter((job) => !tally.run(job.data, (job.retryCount ?? 0) + 1));
      // A batch fails in one statement, which is several times as fast as the
      // results of single jobs that it can be given (`perJobResults`).
      if (failed.length > 0 && failed.length === jobs.length) throw new Error("not yet");
      if (failed.length > 0) await boss.fail(QUEUE, failed.map((job) => job.id));
    });
  },
});
