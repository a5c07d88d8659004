// The two measures that take long: a list over a million jobs, and an hour's worth of events in a minute. Run by
// scripts/soak.sh, and by hand with: node e2e/soak.mjs [storm|list]. Figures are told; what is judged is ratios and growth.
import assert from "node:assert/strict";
import { launch, openPage, startServer } from "./support.mjs";

const JOBS = Number(process.env.REDRIVE_SOAK_JOBS ?? 1_000_000);
const SECS = Number(process.env.REDRIVE_SOAK_SECS ?? 60);
const EVENTS = Number(process.env.REDRIVE_SOAK_EVENTS ?? 500);

async function fill(server, upTo, from) {
  for (let at = from; at < upTo; at += 1_000) {
    const jobs = Array.from({ length: Math.min(1_000, upTo - at) }, (_, index) => ({
      kind: index % 3 ? "later" : "much-later",
      key: `job-${at + index}`,
      delay: "30d",
      payload: { order: at + index },
    }));
    await server.call("POST", "/jobs/bulk", jobs);
  }
}

/** How long it takes until the rows of a fresh page are there; the middle of several. */
async function firstRows(browser, server, path) {
  const times = [];
  for (let look = 0; look < 7; look += 1) {
    const page = await openPage(browser);
    const start = performance.now();
    await page.goto(server.url + path);
    await page.locator("[data-row]").nth(49).waitFor();
    times.push(performance.now() - start);
    await page.context().close();
  }
  return times.sort((one, other) => one - other)[3];
}

const LISTS = [
  ["all jobs", "/jobs"],
  ["by kind", "/jobs?kind=later"],
  ["by kind and state", "/jobs?kind=later&state=waiting"],
];

async function millionJobs(browser) {
  const server = await startServer({ env: { REDRIVE_DURABILITY: "relaxed" } });
  const measured = async () => {
    const times = [];
    for (const [, path] of LISTS) times.push(await firstRows(browser, server, path));
    return times;
  };
  try {
    await fill(server, 1_000, 0);
    const few = await measured();
    await fill(server, JOBS, 1_000);
    const many = await measured();
    for (const [index, [name]] of LISTS.entries()) {
      const ratio = many[index] / few[index];
      const [first, then] = [few[index].toFixed(0), many[index].toFixed(0)];
      console.log(
        `first rows, ${name}: ${first} ms with 1,000 jobs, ${then} ms with ${JOBS}: ${ratio.toFixed(2)} times`,
      );
      assert.ok(ratio <= 3, `${name}: ${ratio} times as long`);
    }
  } finally {
    await server.end();
  }
}

/** Jobs that are put in and taken back: two events each. */
async function storm(server, perSecond, seconds) {
  let sent = 0;
  const started = performance.now();
  while (performance.now() - started < seconds * 1_000) {
    const wanted = Math.floor(((performance.now() - started) / 1_000) * (perSecond / 2));
    const size = Math.min(500, wanted - sent);
    if (size > 0) {
      const jobs = Array.from({ length: size }, () => ({ kind: "storm", delay: "1h", payload: {} }));
      await server.call("POST", "/jobs/bulk", jobs);
      await server.call("POST", "/jobs/commands", {
        command: "cancel",
        dryRun: false,
        filter: { kind: "storm", state: "waiting" },
      });
      sent += size;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return (sent * 2) / seconds;
}

async function eventStorm(browser) {
  const server = await startServer({ env: { REDRIVE_DURABILITY: "relaxed" } });
  const page = await openPage(browser, {
    script: `{
      const Real = EventSource;
      globalThis.dropped = 0;
      globalThis.EventSource = class extends Real {
        constructor(url) {
          super(url);
          this.addEventListener("error", () => { globalThis.dropped += 1; });
        }
      };
    }`,
  });
  try {
    await page.goto(server.url);
    await page.getByTestId("live").filter({ hasText: "Live" }).waitFor();
    const session = await page.context().newCDPSession(page);
    await session.send("Performance.enable");
    const metric = async (name) =>
      (await session.send("Performance.getMetrics")).metrics.find((one) => one.name === name).value;
    const heap = async () => {
      await session.send("HeapProfiler.collectGarbage");
      return metric("JSHeapUsedSize");
    };
    // The first part fills caches that have a bound; growth is looked for after it.
    await storm(server, EVENTS, SECS / 4);
    const [busy, used, at] = [await metric("TaskDuration"), await heap(), performance.now()];
    const rate = await storm(server, EVENTS, SECS);
    const share = ((await metric("TaskDuration")) - busy) / ((performance.now() - at) / 1_000);
    const growth = (await heap()) / used;
    const dropped = await page.evaluate(() => globalThis.dropped);
    console.log(
      `storm: ${rate.toFixed(0)} events/s for ${SECS} s; main thread busy ${(share * 100).toFixed(1)} %; heap ${(used / 1e6).toFixed(1)} MB, then ${growth.toFixed(2)} times that; ${dropped} connections dropped`,
    );
    assert.ok(rate >= EVENTS * 0.9, `only ${rate} events a second were made`);
    assert.ok(share < 0.5, `the main thread was busy ${share}`);
    assert.ok(growth < 1.3, `the heap grew to ${growth} times its size`);
    assert.equal(dropped, 0);
    assert.deepEqual(page.trouble, []);
  } finally {
    await page.context().close();
    await server.end();
  }
}

// Both, or the one that is named.
const [, , only] = process.argv;
const browser = await launch();
try {
  if (only !== "list") await eventStorm(browser);
  if (only !== "storm") await millionJobs(browser);
} finally {
  await browser.close();
}
