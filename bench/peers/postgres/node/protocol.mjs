// The protocol of ../README.md, once for both Node.js peers: the command line,
// the start signal, the measures, the JSON lines. A peer is an object with the
// functions used here; what it must not do is measure anything.

import { createInterface } from "node:readline";

/** How many times a job of `retry_path` fails before it succeeds. */
const FAILURES = 2;
/** Jobs in one call when the queue is filled beforehand, which is not timed. */
const FILL = 5000;
/** Jobs in one call of `bulk_1000`. */
const BULK = 1000;
/** How often a worker process says how far it is. */
const REPORT_EVERY_MS = 5;
/** Between the start signal and the first instant of `lateness`. */
const LATENESS_LEAD_MS = 2000;
/** Over how long the instants of `lateness` are spread. */
const LATENESS_SPREAD_MS = 10000;

const WORKER_MEASURES = ["drain_1", "drain_2", "retry_path", "latency", "lateness"];

function parse() {
  const call = { store: "", measure: "", jobs: 0, settings: {} };
  const words = process.argv.slice(2);
  for (let index = 0; index < words.length; index += 2) {
    const [flag, value] = [words[index], words[index + 1]];
    if (flag === "--store") call.store = value;
    else if (flag === "--measure") call.measure = value;
    else if (flag === "--jobs") call.jobs = Number(value);
    else if (flag === "--set") {
      const [name, number] = value.split("=");
      call.settings[name] = Number(number);
    } else usage(`unknown flag ${flag}`);
  }
  if (!call.store || !call.measure || !call.jobs) usage("--store, --measure and --jobs are needed");
  call.throughput = call.measure.startsWith("drain") || call.measure === "retry_path";
  call.setting = (name, fallback) => call.settings[name] ?? fallback;
  return call;
}

function usage(wrong) {
  console.error(`${wrong}\nusage: --store URL --measure NAME --jobs N [--set NAME=VALUE]...`);
  process.exit(2);
}

function say(line) {
  process.stdout.write(`${typeof line === "string" ? line : JSON.stringify(line)}\n`);
}

// Nobody reads on: the runner has what it wanted, or is gone.
process.stdout.on("error", () => process.exit(0));

/** Milliseconds since 1970 with what there is below them. */
function now() {
  return performance.timeOrigin + performance.now();
}

/**
 * Says `ready` and waits for the first line; `onLine` is called for each
 * further one, and the end of the input ends the process.
 */
function ready(onLine = () => {}) {
  return new Promise((started) => {
    let first = true;
    const lines = createInterface({ input: process.stdin });
    lines.on("line", () => {
      if (first) started();
      else onLine();
      first = false;
    });
    lines.on("close", () => process.exit(0));
    say("ready");
  });
}

/** What the handlers of a process have seen. */
class Tally {
  constructor(measure) {
    this.failures = measure === "retry_path" ? FAILURES : 0;
    this.timed = measure === "latency" || measure === "lateness";
    this.attempts = 0;
    this.handled = 0;
    this.late_ms = [];
  }

  /**
   * The whole handler: whether the job succeeds. `attempt` counts from 1 and
   * is what the queue has on record: a queue that forgets a failure never gets
   * to the end.
   */
  run(payload, attempt) {
    if (this.timed) this.late_ms.push(now() - payload.at);
    this.attempts += 1;
    if (attempt <= this.failures) return false;
    this.handled += 1;
    return true;
  }

  report() {
    let said = 0;
    setInterval(() => {
      if (this.attempts === said) return;
      said = this.attempts;
      say({ handled: this.handled, attempts: this.attempts, late_ms: this.late_ms });
      this.late_ms = [];
    }, REPORT_EVERY_MS);
  }
}

export async function main(peer) {
  const call = parse();
  await peer.connect(call);
  if (call.measure === "setup") {
    await peer.setUp();
    say({ peer: peer.name, unfinished: peer.unfinished, attempts: peer.attempts });
  } else if (call.measure === "fill") await addInBatches(peer, call.jobs, FILL);
  else if (call.measure === "enqueue_64") await timed(() => enqueue(peer, call));
  else if (call.measure === "bulk_1000") await timed(() => addInBatches(peer, call.jobs, BULK));
  else if (call.measure === "latency_producer") return produce(peer);
  else if (WORKER_MEASURES.includes(call.measure)) return work(peer, call);
  else usage(`unknown measure ${call.measure}`);
  process.exit(0);
}

async function timed(what) {
  await ready();
  const start = performance.now();
  await what();
  say({ seconds: (performance.now() - start) / 1000 });
}

async function addInBatches(peer, jobs, batch) {
  for (let first = 0; first < jobs; first += batch) {
    const length = Math.min(batch, jobs - first);
    await peer.addAll(Array.from({ length }, (_, index) => ({ n: first + index, at: 0 })));
  }
}

async function enqueue(peer, call) {
  let next = 0;
  const caller = async () => {
    while (next < call.jobs) await peer.add({ n: next++, at: 0 });
  };
  await Promise.all(Array.from({ length: call.setting("callers", peer.callers) }, caller));
}

async function produce(peer) {
  let n = 0;
  const send = () => peer.add({ n: n++, at: now() });
  await ready(send);
  await send();
}

async function work(peer, call) {
  const tally = new Tally(call.measure);
  await peer.prepare(call, tally);
  await ready();
  tally.report();
  await peer.work(call, tally);
  if (call.measure !== "lateness") return;
  const first = Date.now() + LATENESS_LEAD_MS;
  const due = (n) => first + Math.floor((n * LATENESS_SPREAD_MS) / call.jobs);
  await peer.addDue(Array.from({ length: call.jobs }, (_, n) => ({ n, at: due(n) })));
}
