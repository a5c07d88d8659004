import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Live } from "./live";

class FakeSource extends EventTarget {
  readyState = 1;
  close = vi.fn(() => {
    this.readyState = 2;
  });
  say(type: string, data?: unknown) {
    this.dispatchEvent(data === undefined ? new Event(type) : new MessageEvent(type, { data: JSON.stringify(data) }));
  }
}

let sources: FakeSource[] = [];
const start = () => {
  const live = new Live(() => {
    const source = new FakeSource();
    sources.push(source);
    return source as unknown as EventSource;
  });
  live.start();
  return live;
};
const event = (job: string) => ({ at: new Date().toISOString(), job, kind: "k", queue: "q", event: "started" });

beforeEach(() => {
  vi.useFakeTimers();
  sources = [];
});
afterEach(() => vi.useRealTimers());

test("it says when it is live, when it comes back, and when it only asks", () => {
  const live = start();
  const seen: string[] = [];
  live.watch(() => seen.push(live.state));
  sources[0]?.say("open");
  sources[0]?.say("error");
  sources[0]?.say("open");
  for (let i = 0; i < 3; i += 1) sources[0]?.say("error");
  expect(seen).toEqual(["live", "reconnecting", "live", "reconnecting", "polling"]);
});

test("a refused stream is asked for again by us, more slowly each time", () => {
  start();
  for (const wait of [500, 1_000, 2_000, 5_000, 5_000]) {
    const source = sources.at(-1) as FakeSource;
    const before = sources.length;
    source.readyState = 2;
    source.say("error");
    vi.advanceTimersByTime(wait - 1);
    expect(sources.length).toBe(before);
    vi.advanceTimersByTime(1);
    expect(sources.length).toBe(before + 1);
  }
});

test("events of a moment are handed on together", () => {
  const live = start();
  const heard: string[][] = [];
  live.hear((events) => heard.push(events.map((one) => one.job)));
  sources[0]?.say("jobs", { jobs: [event("a")], more: 0 });
  sources[0]?.say("jobs", { jobs: [event("b"), event("c")], more: 0 });
  expect(heard).toEqual([]);
  vi.advanceTimersByTime(200);
  expect(heard).toEqual([["a", "b", "c"]]);
});

test("of a storm a bounded number is handed on, and the rest is counted", () => {
  const live = start();
  let told = 0;
  let rest = 0;
  live.hear((events, more) => {
    told += events.length;
    rest += more;
  });
  for (let i = 0; i < 20; i += 1)
    sources[0]?.say("jobs", { jobs: Array.from({ length: 200 }, () => event("a")), more: 5 });
  vi.advanceTimersByTime(200);
  expect([told, rest]).toEqual([2_000, 2_100]);
});

test("paused, the stream is closed; afterwards everything is asked for", () => {
  const live = start();
  sources[0]?.say("open");
  live.toggle();
  expect(live.state).toBe("paused");
  expect(sources[0]?.close).toHaveBeenCalled();
  live.start();
  expect(sources.length).toBe(1);
  const heard = vi.fn();
  live.hear(heard);
  live.toggle();
  vi.advanceTimersByTime(200);
  expect(sources.length).toBe(2);
  expect(heard).toHaveBeenCalledWith([], 1);
});

test("a snapshot is news even without events: another server may have been at work", () => {
  const live = start();
  const heard = vi.fn();
  live.hear(heard);
  sources[0]?.say("snapshot", { stats: {}, missed: false });
  vi.advanceTimersByTime(200);
  expect(heard).toHaveBeenCalledWith([], 0);
});

test("a notice is handed on at once", () => {
  const live = start();
  const heard = vi.fn();
  const stop = live.hearNotices(heard);
  sources[0]?.say("notice", { what: "failure_rate", message: "half of all fail" });
  stop();
  sources[0]?.say("notice", { what: "failure_rate", message: "again" });
  expect(heard.mock.calls).toEqual([[{ what: "failure_rate", message: "half of all fail" }]]);
});
