import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { address, hearTime } from "./api/client";
import { ExactNumber } from "./api/exact";
import { baseOf } from "./base";
import { serverClock } from "./clock";
import { asCurl, quoted } from "./copy";
import { diffLines } from "./diff";
import { readFilter, writeFilter } from "./filters";
import { activityText, jobName, reasonName, translate } from "./i18n";
import { isId } from "./pages/jobs";
import { narrowed } from "./parts/bulk";
import { roundTop } from "./parts/charts";
import { PAGES } from "./parts/pages";
import { pieces } from "./parts/timeline";
import { hideSecrets, isSecret, showSecrets } from "./secrets";
import { languageOf } from "./settings";
import { en } from "./strings/en";
import { zhTW } from "./strings/zh-TW";

test("the mount is found from the address of the script", () => {
  expect(baseOf("http://here/assets/index-1.js")).toBe("");
  expect(baseOf("http://here/ops/redrive/assets/index-1.js")).toBe("/ops/redrive");
});

test("addresses have their parts filled in and escaped, and leave out what is not asked", () => {
  expect(address("GET /api/v1/jobs/{id}", { id: "a/b?" })).toContain("/api/v1/jobs/a%2Fb%3F");
  expect(address("GET /api/v1/jobs", {}, { state: "dead", kind: "", key: undefined, label: "a=b&c" })).toMatch(
    /\?state=dead&label=a%3Db%26c$/,
  );
});

test("the date of an answer sets the clock within a second", () => {
  const dated = (at: number) => new Headers({ date: new Date(at).toUTCString() });
  hearTime(dated(Date.now() + 600_000), Date.now() - 10, Date.now());
  expect(Math.abs(serverClock.offset - 600_000)).toBeLessThan(1_100);
  hearTime(dated(Date.now()), Date.now() - 10, Date.now());
  expect(Math.abs(serverClock.offset)).toBeLessThan(1_100);
  hearTime(new Headers(), 0, 0);
});

test("what the engine says of its time sets the clock to the time an answer took", () => {
  const now = Date.now();
  hearTime(new Headers({ "redrive-time": String(now - 600_000), date: new Date(now).toUTCString() }), now - 10, now);
  expect(Math.abs(serverClock.offset + 600_000)).toBeLessThanOrEqual(11);
  hearTime(new Headers({ "redrive-time": String(now) }), now - 10, now);
});

test("a job is called by its key, or by where it goes, or by what it does", () => {
  const t = (key: Parameters<typeof translate>[1], values = {}) => translate("en", key, values);
  expect(jobName(t, { kind: "http", key: "order-17", destination: "api.x" })).toBe("HTTP call order-17");
  expect(jobName(t, { kind: "http", destination: "api.x" })).toBe("HTTP call to api.x");
  expect(jobName(t, { kind: "constructor" })).toBe("constructor");
});

test("the sentences that are told most are told in the reader's language, the others as they are", () => {
  const t = (key: Parameters<typeof translate>[1], values = {}) => translate("en", key, values);
  const zh = (key: Parameters<typeof translate>[1], values = {}) => translate("zh-TW", key, values);
  const recovered = { what: "recovered", message: "finished at run 3, after 2 failures" };
  expect(activityText(t, recovered)).toBe(recovered.message);
  expect(activityText(zh, recovered)).toBe("第 3 次執行完成，先前失敗 2 次");
  const dead = { what: "dead", message: "needs a person (crash_loop) after run 1: it\nbroke: {why}" };
  expect(activityText(t, dead)).toBe("crash loop after run 1: it\nbroke: {why}");
  expect(activityText(zh, dead)).toBe("第 1 次執行後反覆當機：it\nbroke: {why}");
  for (const line of [
    { what: "dead", message: "something else" },
    { what: "recovered", message: "needs a person (permanent) after run 1: x" },
  ]) {
    expect(activityText(zh, line)).toBe(line.message);
  }
  expect([reasonName(zh, "expired"), reasonName(zh, "toString")]).toEqual(["已逾期", "toString"]);
});

test("filters survive the way into the URL and back", () => {
  const filter = { state: "dead", label: "team=a&b", destination: "api.example" };
  expect(readFilter(writeFilter(filter, "c4"))).toEqual({ filter, cursor: "c4" });
  expect(writeFilter({ state: "" })).toBe("");
  expect(readFilter("?unknown=1")).toEqual({ filter: {}, cursor: undefined });
});

test("what a shell is given is only ever text", () => {
  expect(quoted("it's $(here) `now`")).toBe(`'it'\\''s $(here) \`now\`'`);
});

test("an http job is copied as the request it makes, with its numbers", () => {
  const payload = {
    method: "PUT",
    url: "https://a.example/x?y='1'",
    headers: { "x-a": "b" },
    body: { id: new ExactNumber("9007199254740993") },
  };
  expect(asCurl({ kind: "http", queue: "default", payload }, "http://here")).toBe(
    `curl -X PUT 'https://a.example/x?y='\\''1'\\''' -H 'x-a: b' -H 'content-type: application/json' -d '{"id":9007199254740993}'`,
  );
  const text = asCurl(
    { kind: "http", queue: "default", payload: { url: "https://a.example", body: "plain" } },
    "http://here",
  );
  expect(text).toBe("curl -X POST 'https://a.example' -d 'plain'");
});

test("any other job is copied as the request that puts it in again", () => {
  const text = asCurl({ kind: "resize", queue: "images", payload: { width: 2 } }, "http://here");
  expect(text).toContain(`-d '{"kind":"resize","queue":"images","payload":{"width":2}}'`);
});

test("names that say secret are secret, and others are not", () => {
  for (const name of [
    "password",
    "apiKey",
    "api_key",
    "Authorization",
    "x-secret-y",
    "client_secret",
    "accessToken",
    "set-cookie",
  ])
    expect(isSecret(name), name).toBe(true);
  for (const name of ["url", "passenger", "order", "key", "author"]) expect(isSecret(name), name).toBe(false);
});

test("secrets leave the text and come back into it unchanged", () => {
  const value = {
    user: "a",
    password: 'p"w',
    nested: [{ token: new ExactNumber("12345678901234567890") }],
    tokens: ["x", "y"],
    secret: null,
  };
  const { text, hidden } = hideSecrets(value);
  expect(text).not.toContain("12345678901234567890");
  expect(text).not.toMatch(/p\\"w|"x"|"y"/);
  const back = showSecrets(text, hidden);
  expect(back).toContain('"password": "p\\"w"');
  expect(back).toContain('"token": 12345678901234567890');
  expect(back).toContain('"secret": null');
  expect(showSecrets('"«hidden 99»"', hidden)).toBe('"«hidden 99»"');
});

test("a diff marks what is gone and what is new, and nothing else", () => {
  expect(diffLines("a\nb\nc", "a\nx\nc\nd").map((line) => `${line.kind[0]}${line.text}`)).toEqual([
    "sa",
    "gb",
    "nx",
    "sc",
    "nd",
  ]);
  expect(diffLines("a", "a")).toEqual([{ kind: "same", text: "a" }]);
  const long = "x\n".repeat(3_000);
  expect(diffLines(long, `${long}y`).some((line) => line.kind === "same")).toBe(false);
});

test("a command over a filter means only jobs to which it can be done", () => {
  expect(narrowed({ command: "redrive", filter: { kind: "http" } })).toEqual({ kind: "http", state: "dead" });
  expect(narrowed({ command: "cancel", filter: { state: "running" } }).state).toBe("running");
  expect(narrowed({ command: "retry", filter: { state: "dead" } }).state).toBe("waiting");
});

test("an axis ends at a round number that no bar exceeds", () => {
  expect([0, 3, 7, 12, 99, 1_234].map(roundTop)).toEqual([4, 4, 8, 20, 100, 2_000]);
});

test("only a whole id is taken for one", () => {
  expect(isId("01a1e333-4a4a-7000-bb8b-cbbcfc87c940")).toBe(true);
  expect(isId("01a1e333")).toBe(false);
});

test("the language is the chosen one, or the browser's, or English", () => {
  expect(languageOf("en", ["zh-TW"])).toBe("en");
  expect(languageOf(undefined, ["de", "zh-Hant-TW", "en"])).toBe("zh-TW");
  expect(languageOf(undefined, ["de", "fr"])).toBe("en");
});

test("the words that were asked for are exactly these", () => {
  const words = (key: keyof typeof zhTW, values = {}) => translate("zh-TW", key, values);
  expect(words("retry.title")).toBe("待重試項目");
  expect(words("kind.parse")).toBe("解析任務");
  expect(words("kind.metadata_fetch")).toBe("元數據獲取");
  expect(words("retry.of", { made: 2, allowed: 4 })).toBe("嘗試 2/4");
  expect(words("retry.last", { error: "x" })).toBe("上次錯誤：x");
  expect(words("retry.in", { left: "3s" })).toBe("3s 後重試");
  expect(words("retry.due")).toBe("即將重試");
  expect(words("retry.now")).toBe("立即重試");
  expect(words("retry.cancel")).toBe("取消");
  expect(words("toast.triggered")).toBe("已觸發立即重試");
  expect(words("toast.cancelled")).toBe("已取消重試");
});

test("both catalogues leave the same places open", () => {
  const places = (entry: string | { one?: string; other: string }) => {
    const text = typeof entry === "string" ? entry : entry.other;
    return [...text.matchAll(/\{(\w+)\}/g)]
      .map(([, name]) => name)
      .filter((name) => name !== "count")
      .sort();
  };
  for (const key of Object.keys(en) as (keyof typeof en)[]) expect(places(zhTW[key]), key).toEqual(places(en[key]));
});

test("the server sends the page at every address that the dashboard has", () => {
  const source = readFileSync("../crates/redrive-server/src/assets.rs", "utf8");
  const [, list = ""] = /const PAGES[^=]*= \[([^\]]*)\]/.exec(source) ?? [];
  const served = [...list.matchAll(/"([^"]+)"/g)].map(([, path]) => path);
  expect(served.sort()).toEqual([...PAGES.map((page) => page.to), "/jobs/{id}", "/executions/{id}", "/sign-in"].sort());
});

test("a timeline waits, runs, waits, and shows what is planned up to the end", () => {
  const at = (seconds: number) => new Date(seconds * 1_000).toISOString();
  const attempt = (number: number, from: number) => ({
    attempt: number,
    startedAt: at(from),
    endedAt: at(from + 1),
    ending: "failed" as const,
  });
  const job = {
    createdAt: at(0),
    state: "waiting" as const,
    dueAt: at(9),
    attempt: 2,
    attempts: [attempt(1, 1), attempt(2, 4)],
  };
  const next = [
    { step: "attempt", run: 3, at: at(9), in: "2s" },
    { step: "dead", at: at(9), in: "2s", why: "exhausted" },
  ];
  const told = pieces(job, { next }, 7_000).map(
    (piece) => `${piece.kind} ${piece.from / 1_000}-${piece.until / 1_000}`,
  );
  expect(told).toEqual(["wait 0-1", "run 1-2", "wait 2-4", "run 4-5", "wait 5-7", "planned 7-9", "end 9-9"]);
  const late = pieces(job, { next }, 12_000).map((piece) => `${piece.kind} ${piece.until / 1_000}`);
  expect(late.slice(-3)).toEqual(["wait 12", "planned 12", "end 12"]);
  const running = pieces({ ...job, state: "running", dueAt: null, runningSince: at(6) }, undefined, 8_000);
  expect(running.at(-1)).toMatchObject({ kind: "run", from: 6_000, until: 8_000, outcome: "running", label: "3" });
  const done = pieces({ ...job, state: "succeeded", dueAt: null, finishedAt: at(9) }, undefined, 9_000);
  expect(done.at(-1)).toMatchObject({ kind: "run", outcome: "succeeded" });
  const gone = pieces({ ...job, state: "cancelled", dueAt: null, finishedAt: at(9) }, undefined, 9_000);
  expect(gone.at(-1)).toMatchObject({ kind: "wait", until: 9_000 });
});
