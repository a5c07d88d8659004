import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { OperationView } from "../api/schema";
import { Entrance } from "../app";
import { Boundary } from "../parts/boundary";
import { troubled } from "../parts/destinations";
import { choose } from "../settings";
import { jobView, READER, Refusal, retryItem, serve, show } from "../testing/server";
import { Activity } from "./activity";
import { Dead, exported } from "./dead";
import { Destinations } from "./destinations";
import { Errors } from "./errors";
import { Job } from "./job";
import { Jobs } from "./jobs";
import { Overview } from "./overview";
import { Policies } from "./policies";
import { Queues } from "./queues";

const ID = "01a1e333-4a4a-7000-bb8b-cbbcfc87c940";
const minutes = (count: number) => new Date(Date.now() - count * 60_000).toISOString();
const stats = {
  totalPending: 3,
  totalSucceeded: 1_234,
  totalFailed: 7,
  waiting: 2,
  running: 1,
  dead: 3,
  enqueued: 9,
  recovered: 5,
  retries: 11,
  failures: 12,
  crashes: 0,
  cancelled: 0,
  redriven: 0,
  successRate: 0.9,
  averageDelayMs: 1_000,
};
const dead = jobView({ id: "d1", state: "dead", why: "permanent", dueAt: null, finishedAt: minutes(2), failures: 1 });
const group = {
  group: "g1",
  count: 4,
  message: "answered 404",
  kind: "http",
  newest: "d1",
  firstAt: minutes(50),
  lastAt: minutes(2),
  trend: [...new Array(20).fill(0), 1, 0, 3, 0],
};
const line = {
  at: minutes(1),
  what: "recovered",
  job: ID,
  kind: "http",
  queue: "default",
  message: "finished at run 2",
};
const audited = {
  id: "a1",
  at: minutes(2),
  what: "job.edit",
  who: "ops",
  on: ID,
  jobId: ID,
  result: "ok",
  detail: "payload",
};
const edit = { at: minutes(2), by: "ops", payload: { order: 16 } };
const queue = {
  name: "default",
  concurrency: 16,
  paused: false,
  waiting: 2,
  running: 4,
  dead: 3,
  succeeded: 1_234,
  retries: 11,
};
const presets = [
  { name: "media", delays: ["1s", "2s"], policy: { backoff: { kind: "exponential", base: "1s", factor: 2 } } },
  { name: "feed", delays: ["1m"], policy: { backoff: { kind: "fixed", delay: "1m" } } },
];
const points = Array.from({ length: 60 }, (_, index) => ({
  at: minutes(60 - index),
  succeeded: index,
  failed: 2,
  dead: index === 59 ? 3 : 0,
  enqueued: 3,
}));
const forecast = Array.from({ length: 60 }, (_, index) => ({ at: minutes(-index), due: index === 1 ? 5 : 0 }));

const routes = {
  "GET /api/v1/session": () => ({ name: "local", scopes: ["admin"] }),
  "GET /api/v1/stats": () => stats,
  "GET /api/v1/stats/series": () => ({ from: minutes(60), until: minutes(0), stepMs: 60_000, points, forecast }),
  "GET /api/v1/retry/pending": () => ({ items: [retryItem()], stats }),
  "GET /api/v1/activity": () => [line, { ...line, what: "dead", message: "needs a person", job: "d1", at: minutes(3) }],
  "GET /api/v1/dead/groups": () => [group],
  "GET /api/v1/dead": () => ({ items: [dead] }),
  "GET /api/v1/jobs": ({ query }: { query: URLSearchParams }) => ({
    items: query.get("state") === "dead" ? [dead] : [jobView()],
    nextCursor: "c4",
  }),
  "GET /api/v1/audit": () => ({ items: [audited] }),
  "GET /api/v1/queues": () => [queue],
  "GET /api/v1/destinations": () => [],
  "GET /api/v1/destinations/limits": () => [],
  "GET /api/v1/policies/presets": () => presets,
  "POST /api/v1/policies/preview": () => ({
    policy: {},
    retries: 2,
    delays: [
      { retry: 1, delay: "1s", delayMs: 1000, after: "1s" },
      { retry: 2, delay: "2s", delayMs: 2000, after: "3s" },
    ],
  }),
};

class NoSource extends EventTarget {
  readyState = 0;
  close() {}
}
beforeEach(() => vi.stubGlobal("EventSource", NoSource));
afterEach(() => vi.restoreAllMocks());

test("the overview says in a sentence what is wrong and when it fixes itself", async () => {
  serve(routes);
  show(<Overview />);
  const health = await screen.findByTestId("health");
  expect(health).toHaveTextContent(/1 waiting to retry, next in [2-4]s/);
  await waitFor(() => expect(health).toHaveTextContent("3 dead in the last hour, all from api.example."));
  expect(
    await screen.findByRole("img", { name: /1,770 succeeded, 120 failed attempts, 3 dead; 5 will come due/ }),
  ).toBeInTheDocument();
  expect(screen.getByTestId("number-dead")).toHaveTextContent("3");
  expect(await screen.findByText("1 retrying · 1 dead")).toBeVisible();
  expect(await screen.findByText("answered 404")).toBeVisible();
});

test("the overview says that all is well when it is", async () => {
  serve({
    ...routes,
    "GET /api/v1/retry/pending": () => ({ items: [], stats }),
    "GET /api/v1/stats": () => ({ ...stats, dead: 0 }),
    "GET /api/v1/jobs": () => ({ items: [] }),
    "GET /api/v1/stats/series": () => ({
      from: minutes(1),
      until: minutes(0),
      stepMs: 60_000,
      points: [],
      forecast: [],
    }),
  });
  show(<Overview />);
  expect(await screen.findByText(/^All is well\./)).toBeVisible();
});

test("the chart tells one bar when it is pointed at, and another window when that is asked for", async () => {
  const log = serve(routes);
  show(<Overview />);
  const chart = await screen.findByRole("img", { name: /will come due/ });
  chart.getBoundingClientRect = () => ({ left: 0, width: 120, top: 0, height: 10 }) as DOMRect;
  fireEvent.pointerMove(chart, { clientX: 92 });
  expect(screen.getByText("will come due").parentElement).toHaveTextContent("5");
  fireEvent.pointerLeave(chart);
  await userEvent.click(screen.getByRole("button", { name: "24h" }));
  await waitFor(() => expect(log.some((asked) => asked.query.get("window") === "24h")).toBe(true));
});

test("destinations in trouble are counted from jobs that failed and jobs that died", () => {
  const fresh = jobView({ failures: 0, destination: "b" });
  expect(troubled([jobView(), fresh], [dead, dead])).toEqual([{ name: "api.example", retrying: 1, dead: 2 }]);
});

test("filters of the jobs live in the URL, and the page turns by cursor", async () => {
  const log = serve(routes);
  show(<Jobs />);
  await screen.findByText(/^…/);
  await userEvent.click(screen.getByRole("button", { name: "dead" }));
  expect(location.search).toBe("?state=dead");
  await userEvent.type(screen.getByRole("textbox", { name: "Destination" }), "api.example{Enter}");
  expect(location.search).toBe("?state=dead&destination=api.example");
  await waitFor(() => expect(log.at(-1)?.query.get("destination")).toBe("api.example"));
  await userEvent.click(screen.getByRole("button", { name: "Older" }));
  expect(location.search).toContain("cursor=c4");
  await userEvent.click(screen.getByRole("button", { name: "Newest" }));
  await userEvent.click(screen.getByRole("button", { name: "Clear filters" }));
  expect(location.search).toBe("");
});

test("a job is found by its id, anything else is a key", async () => {
  serve(routes);
  show(<Jobs />);
  const field = await screen.findByRole("textbox", { name: "Find" });
  await userEvent.type(field, "order-17{Enter}");
  expect(location.search).toBe("?key=order-17");
  await userEvent.clear(field);
  await userEvent.type(field, `${ID}{Enter}`);
  expect(location.pathname).toBe(`/jobs/${ID}`);
});

test("what is selected is acted upon, one refusal not stopping the rest", async () => {
  const jobs = ["a", "b", "c"].map((id) => jobView({ id }));
  const log = serve({
    ...routes,
    "GET /api/v1/jobs": () => ({ items: jobs }),
    "POST /api/v1/jobs/*": ({ path }) =>
      path.includes("/b/") ? new Refusal(409, "RETRY_CONFLICT", "b is running") : jobView(),
  });
  show(<Jobs />);
  await userEvent.click(await screen.findByRole("checkbox", { name: "Select all on this page" }));
  expect(screen.getByText("3 selected")).toBeVisible();
  await userEvent.click(screen.getAllByRole("button", { name: "Cancel" })[0] as HTMLElement);
  expect(await screen.findByText("2 jobs cancelled")).toBeVisible();
  expect(screen.getByText("Not done: b is running")).toBeVisible();
  expect(log.filter((asked) => asked.path.endsWith("/cancel"))).toHaveLength(3);
});

const operation = (fields: Partial<OperationView> = {}): OperationView => ({
  id: "o1",
  command: "cancel",
  filter: {},
  state: "running",
  matching: 5_000,
  more: false,
  seen: 0,
  done: 0,
  by: "local",
  startedAt: minutes(0),
  updatedAt: minutes(0),
  ...fields,
});
/** Counted if that is all that is asked, and begun if not. */
const begins = (body: unknown, counted: { matching: number; more: boolean }) =>
  (body as { dryRun?: boolean }).dryRun ? counted : { ...counted, operation: operation(counted) };

test("everything that matches is counted before anything is done", async () => {
  const asked: unknown[] = [];
  serve({
    ...routes,
    "POST /api/v1/jobs/commands": ({ body }) => {
      asked.push(body);
      return begins(body, { matching: 5_000, more: false });
    },
    "GET /api/v1/operations/o1": () => operation({ state: "done", seen: 5_000, done: 5_000 }),
  });
  history.replaceState(null, "", "/jobs?kind=http");
  show(<Jobs />);
  await userEvent.click(await screen.findByRole("button", { name: "Cancel all that match…" }));
  expect(await screen.findByTestId("matching")).toHaveTextContent("5,000 jobs match");
  expect(asked).toEqual([{ command: "cancel", filter: { kind: "http", state: "waiting" }, dryRun: true }]);
  await userEvent.click(screen.getByRole("button", { name: "Cancel 5,000 jobs" }));
  expect(await screen.findByText("5,000 jobs cancelled")).toBeVisible();
  expect(asked.at(-1)).toEqual({
    command: "cancel",
    filter: { kind: "http", state: "waiting" },
    dryRun: false,
    background: true,
  });
});

test("work on everything shows how far it is and can be stopped", async () => {
  let isStopped = false;
  const log = serve({
    ...routes,
    "POST /api/v1/jobs/commands": ({ body }) => begins(body, { matching: 900, more: false }),
    "POST /api/v1/operations/*": () => {
      isStopped = true;
      return operation();
    },
    "GET /api/v1/operations/o1": () =>
      operation({ matching: 900, seen: 400, done: 350, state: isStopped ? "stopped" : "running" }),
  });
  show(<Jobs />);
  await userEvent.click(await screen.findByRole("button", { name: "Retry all that match…" }));
  await userEvent.click(await screen.findByRole("button", { name: "Retry 900 jobs" }));
  expect(await screen.findByText("350 of 900 done")).toBeVisible();
  expect(screen.getByRole("progressbar", { name: "Progress" })).toHaveAttribute("value", "400");
  await userEvent.click(screen.getByRole("button", { name: "Stop" }));
  expect(await screen.findByText("Stopped. 350 were done before.")).toBeVisible();
  expect(log.some((asked) => asked.path === "/api/v1/operations/o1/cancel")).toBe(true);
});

test("of more than were counted only what is done is told, and what it failed of is said", async () => {
  let state: OperationView["state"] = "running";
  serve({
    ...routes,
    "POST /api/v1/jobs/commands": ({ body }) => begins(body, { matching: 10_000, more: true }),
    "GET /api/v1/operations/o1": () =>
      operation({ more: true, done: 12_000, state, ...(state === "failed" ? { error: "the disk is full" } : {}) }),
  });
  show(<Jobs />);
  await userEvent.click(await screen.findByRole("button", { name: "Retry all that match…" }));
  await userEvent.click(await screen.findByRole("button", { name: "Retry 10,000+ jobs" }));
  expect(await screen.findByText("12,000 done so far")).toBeVisible();
  expect(screen.getByRole("progressbar", { name: "Progress" })).not.toHaveAttribute("value");
  state = "failed";
  expect(await screen.findByRole("alert")).toHaveTextContent("the disk is full");
});

test("a purge wants a word first", async () => {
  serve({
    ...routes,
    "POST /api/v1/jobs/commands": ({ body }) => begins(body, { matching: 3, more: false }),
    "GET /api/v1/operations/o1": () => operation({ command: "delete", state: "done", done: 3 }),
  });
  show(<Dead />);
  await userEvent.click(await screen.findByRole("button", { name: "Purge all that match…" }));
  const button = await screen.findByRole("button", { name: "Purge 3 jobs" });
  expect(button).toBeDisabled();
  await userEvent.type(screen.getByRole("textbox", { name: "Type “purge” to confirm" }), "purge");
  expect(button).toBeEnabled();
  await userEvent.click(button);
  expect(await screen.findByText("3 jobs purged")).toBeVisible();
});

test("dead letters show why, can be brought back, and are exported page by page", async () => {
  const log = serve({ ...routes, "POST /api/v1/jobs/*": () => dead });
  show(<Dead />);
  expect(await screen.findByText("permanent")).toBeVisible();
  expect(screen.getByText("3 jobs need a person")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Bring back" }));
  expect(await screen.findByText("Brought back")).toBeVisible();
  expect(log.some((asked) => asked.path === "/api/v1/jobs/d1/redrive")).toBe(true);
  let page = 0;
  serve({ "GET /api/v1/dead": () => (++page < 3 ? { items: [dead], nextCursor: "c" } : { items: [dead] }) });
  expect((await exported({ state: "dead", kind: "http" })).trim().split("\n")).toHaveLength(3);
});

test("an export is handed to the browser as a file", async () => {
  serve(routes);
  const url = vi.spyOn(URL, "createObjectURL").mockReturnValue("blob:x");
  vi.spyOn(URL, "revokeObjectURL").mockReturnValue();
  const click = vi.spyOn(HTMLAnchorElement.prototype, "click").mockReturnValue();
  show(<Dead />);
  await userEvent.click(await screen.findByRole("button", { name: "Export JSONL" }));
  await waitFor(() => expect(click).toHaveBeenCalled());
  expect(url.mock.calls[0]?.[0]).toHaveProperty("type", "application/x-ndjson");
});

test("an error group shows its trend, opens to its jobs, and is brought back as a whole", async () => {
  const bodies: unknown[] = [];
  serve({
    ...routes,
    "POST /api/v1/jobs/commands": ({ body }) => {
      bodies.push(body);
      return { matching: 4, more: false };
    },
  });
  show(<Errors />);
  await userEvent.click(await screen.findByRole("button", { name: /answered 404/ }));
  expect(location.search).toBe("?group=g1");
  expect(screen.getByRole("img", { name: /4 in the last/ }).querySelectorAll("rect")).toHaveLength(24);
  expect(screen.getByRole("link", { name: "List its jobs" })).toHaveAttribute("href", "/dead?group=g1");
  await userEvent.click(screen.getByRole("button", { name: "Bring back the group…" }));
  expect(await screen.findByTestId("matching")).toHaveTextContent("4 jobs match");
  expect(bodies[0]).toEqual({ command: "redrive", filter: { group: "g1", state: "dead" }, dryRun: true });
});

const attempts = [
  {
    attempt: 1,
    startedAt: minutes(4),
    endedAt: minutes(3.99),
    ending: "failed",
    rule: "status 503",
    group: "g1",
    nextAt: minutes(3),
    failure: { class: "transient", status: 503, message: "busy\u202e" },
  },
];
const detail = (fields: object = {}) =>
  JSON.stringify({
    success: true,
    data: {
      ...jobView({ payload: { order: 17, password: "hunter2", deep: { a: [1, 2] } }, labels: { team: "billing" } }),
      attempts,
      edits: [edit],
      lastError: "busy",
      ...fields,
    },
  });
const explain = {
  id: ID,
  state: "waiting",
  summary: "waiting for 60s more: it failed",
  next: [
    { step: "attempt", run: 3, at: minutes(-1), in: "60s" },
    { step: "dead", at: minutes(-2), in: "2m", why: "exhausted" },
  ],
};

test("a job's page shows why it waits, its timeline, its payload without secrets, and what can be done", async () => {
  const log = serve({
    ...routes,
    [`GET /api/v1/jobs/${ID}/explain`]: () => explain,
    [`GET /api/v1/jobs/${ID}`]: () => detail(),
    "POST /api/v1/*": () => jobView(),
  });
  show(<Job id={ID} />);
  expect(await screen.findByTestId("explain")).toHaveTextContent("waiting for 60s more: it failed");
  expect(screen.getByText("busy\\u202e")).toBeVisible();
  expect(await screen.findByText("by ops")).toBeVisible();
  expect(screen.getByText(/Before the change by ops/)).toBeVisible();
  expect(screen.getByText(/run 3/)).toHaveTextContent("planned");
  expect(screen.getByText(/given up: exhausted/)).toBeVisible();
  expect(screen.queryByText(/hunter2/)).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: /show/ }));
  expect(screen.getByText('"hunter2"')).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Retry now" }));
  expect(await screen.findByText("Retry triggered")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Put off 1 h" }));
  await waitFor(() => expect(log.some((asked) => asked.path.endsWith("/snooze"))).toBe(true));
});

test("however an attempt ended, its job's page says so", async () => {
  const endings = ["succeeded", "failed", "snoozed", "crashed", "interrupted", "unhandled", "expired", "cancelled"];
  const one = (ending: string, index: number) => ({ ...attempts[0], attempt: index + 1, ending });
  serve({
    ...routes,
    [`GET /api/v1/jobs/${ID}/explain`]: () => explain,
    [`GET /api/v1/jobs/${ID}`]: () => detail({ attempts: [...endings, "held", "invented later"].map(one) }),
  });
  show(<Job id={ID} />);
  for (const said of ["process died", "nobody knew its kind", "held", "invented later"])
    expect((await screen.findAllByText(said, { exact: false })).length).toBeGreaterThan(0);
});

function Said({ words }: { words: Map<string, string> }) {
  const word = words.get("health");
  if (!word) throw new Error("there is no such word");
  return <p>{word}</p>;
}

test("a page that cannot be drawn says why, and is drawn again when that is asked for", async () => {
  const logged = vi.spyOn(console, "error").mockImplementation(() => {});
  const words = new Map<string, string>();
  show(
    <Boundary>
      <Said words={words} />
    </Boundary>,
  );
  expect(screen.getByRole("alert")).toHaveTextContent("there is no such word");
  words.set("health", "All is well");
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(screen.getByText("All is well")).toBeVisible();
  logged.mockRestore();
});

test("numbers of a payload stay as they were written, through the editor and back", async () => {
  const sent: string[] = [];
  const text = detail().replace('"order":17', '"order":9007199254740993');
  serve({
    ...routes,
    [`GET /api/v1/jobs/${ID}/explain`]: () => explain,
    [`GET /api/v1/jobs/${ID}`]: () => text,
    [`PATCH /api/v1/jobs/${ID}`]: (asked) => {
      sent.push(asked.text);
      return jobView();
    },
    "POST /api/v1/*": () => jobView(),
  });
  show(<Job id={ID} />);
  expect(await screen.findByText("9007199254740993")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Edit and retry" }));
  const editor = screen.getByRole("textbox", { name: /^Payload/ }) as HTMLTextAreaElement;
  expect(editor.value).not.toContain("hunter2");
  fireEvent.change(editor, { target: { value: "{" } });
  expect(screen.getByRole("button", { name: "Save and retry" })).toBeDisabled();
  fireEvent.change(editor, { target: { value: editor.defaultValue } });
  const before = `{\n  "order": 9007199254740993,\n  "password": "«hidden 1»"\n}`;
  fireEvent.change(editor, { target: { value: before } });
  expect(within(screen.getByTestId("diff")).getByText(/"deep"/)).toHaveClass("bg-bad-dim");
  await userEvent.click(screen.getByRole("button", { name: "Save and retry" }));
  await waitFor(() => expect(sent).toHaveLength(1));
  expect(sent[0]).toContain('"order": 9007199254740993');
  expect(sent[0]).toContain('"password": "hunter2"');
});

test("a finished job can be deleted or brought back; one that is gone is said to be gone", async () => {
  const over = detail({ state: "dead", dueAt: null, finishedAt: minutes(1), why: "exhausted" });
  serve({
    ...routes,
    [`GET /api/v1/jobs/${ID}/explain`]: () => ({ ...explain, next: [] }),
    [`GET /api/v1/jobs/${ID}`]: () => over,
    [`DELETE /api/v1/jobs/${ID}`]: () => ({ id: ID }),
  });
  const { unmount } = show(<Job id={ID} />);
  await userEvent.click(await screen.findByRole("button", { name: "Delete" }));
  expect(await screen.findByText("Deleted")).toBeVisible();
  unmount();
  serve(routes);
  show(<Job id="nope" />);
  expect(await screen.findByText(/There is no job nope/)).toBeVisible();
});

test("whoever may not read payloads is told so", async () => {
  const bare = JSON.stringify({ success: true, data: { ...jobView(), payload: undefined, attempts: [], edits: [] } });
  serve({ ...routes, [`GET /api/v1/jobs/${ID}/explain`]: () => explain, [`GET /api/v1/jobs/${ID}`]: () => bare });
  show(<Job id={ID} />, READER);
  expect(await screen.findByText("Your token does not allow you to read payloads.")).toBeVisible();
  expect(screen.queryByRole("button", { name: "Retry now" })).toBeNull();
});

test("a queue is paused, said to be, and resumed by undoing", async () => {
  const log = serve({ ...routes, "POST /api/v1/queues/*": () => queue });
  show(<Queues />);
  expect(await screen.findByText("4 of 16")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Pause" }));
  expect(await screen.findByText("Queue default is paused")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));
  await waitFor(() =>
    expect(log.filter((asked) => asked.method === "POST").map((asked) => asked.path)).toEqual([
      "/api/v1/queues/default/pause",
      "/api/v1/queues/default/resume",
    ]),
  );
});

const limits = { breaker: 10, retryBudget: 20, retryAfterMax: "1d" };
const gate = { name: "api.x", state: "open", held: 0, limits, learned: {} };
const gates = [
  { ...gate, name: "a.x", state: "shut", reason: "failing", since: minutes(3), probeAt: minutes(-1), held: 1_204 },
  { ...gate, name: "b.x", state: "shut", reason: "retry_after", since: minutes(3), until: minutes(-60) },
  { ...gate, name: "c.x", state: "ramp", levelPerSecond: 4.2, learned: { bearsPerSecond: 40, tookMs: 12 } },
  { ...gate, name: "d.x#crm", state: "shut", reason: "credential", since: minutes(3) },
  { ...gate, name: "e.x", state: "paused", limits: { ...limits, rate: "10/s", concurrency: 4, breaker: 0 } },
  { ...gate, name: "f.x", state: "probing", reason: "failing", since: minutes(3), held: 2 },
];

test("each destination says how it stands, why, until when and what it bears", async () => {
  serve({ ...routes, "GET /api/v1/destinations": () => gates });
  show(<Destinations />);
  const row = async (name: string) => await screen.findByTestId(`destination-${name}`);
  expect(await row("a.x")).toHaveTextContent(/down.*Different jobs failed in a row; asked again in.*1,204/);
  expect(await row("b.x")).toHaveTextContent(/It asked for a pause; goes on in/);
  expect(await row("c.x")).toHaveTextContent(/coming back4.2 a second, rising.*bears 40\/s · 12 ms a call/);
  expect(await row("d.x#crm")).toHaveTextContent("It does not accept its credential");
  expect(await row("e.x")).toHaveTextContent(/paused.*10\/s · 4 at once · shuts after 0/);
  expect(await row("f.x")).toHaveTextContent("One job is asking whether it is back");
});

test("what is said of a destination is sent, and a pause is undone", async () => {
  const log = serve({ ...routes, "GET /api/v1/destinations": () => gates, "POST /api/v1/destinations/*": () => gate });
  show(<Destinations />);
  const row = within(await screen.findByTestId("destination-a.x"));
  await userEvent.click(row.getByRole("button", { name: "Pause" }));
  expect(await screen.findByText("a.x is paused")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));
  await userEvent.click(row.getByRole("button", { name: "Mark as up" }));
  const named = within(await screen.findByTestId("destination-d.x#crm"));
  await userEvent.click(named.getByRole("button", { name: "Mark as up" }));
  await waitFor(() =>
    expect(log.filter((asked) => asked.method === "POST").map((asked) => asked.path)).toEqual([
      "/api/v1/destinations/a.x/pause",
      "/api/v1/destinations/a.x/resume",
      "/api/v1/destinations/a.x/up",
      "/api/v1/destinations/d.x%23crm/up",
    ]),
  );
});

test("limits are set by pattern, edited and taken back, and a refusal is said", async () => {
  const rule = { pattern: "*.x", from: "set", limits: { ...limits, rate: "10/s" } };
  let answer: unknown = rule;
  const log = serve({
    ...routes,
    "GET /api/v1/destinations/limits": () => [rule, { ...rule, pattern: "*.y", from: "config" }],
    "PUT /api/v1/destinations/limits/*": () => answer,
    "DELETE /api/v1/destinations/limits/*": () => ({ pattern: "*.x" }),
  });
  show(<Destinations />);
  await userEvent.click(await screen.findByRole("button", { name: "Add limits" }));
  await userEvent.type(screen.getByRole("textbox", { name: /pattern/ }), "*.z");
  await userEvent.type(screen.getByRole("textbox", { name: "Calls per time" }), "5/s");
  await userEvent.type(screen.getByRole("textbox", { name: "Calls under way at once" }), "3");
  answer = new Refusal(422, "RETRY_INVALID", "the limits were not set");
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  expect(await screen.findByText(/Not done: the limits were not set/)).toBeVisible();
  answer = rule;
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  expect(await screen.findByText("Limits for *.z are set")).toBeVisible();
  const sent = log.filter((asked) => asked.method === "PUT");
  expect(sent.at(-1)).toMatchObject({ path: "/api/v1/destinations/limits/*.z", body: { rate: "5/s", concurrency: 3 } });
  await userEvent.click(screen.getByRole("button", { name: "Take back" }));
  await waitFor(() => expect(log.some((asked) => asked.method === "DELETE")).toBe(true));
});

test("whoever may only read is shown destinations and no way to change them", async () => {
  serve({ ...routes, "GET /api/v1/destinations": () => gates });
  show(<Destinations />, READER);
  expect(await screen.findByTestId("destination-a.x")).toBeVisible();
  expect(screen.queryByRole("button", { name: /Pause|Say it|Limits|Add/ })).toBeNull();
});

test("the overview says how many destinations are down and how many jobs they hold", async () => {
  serve({ ...routes, "GET /api/v1/destinations": () => gates });
  show(<Overview />);
  const link = await screen.findByRole("link", { name: "3 destinations down, 1,206 jobs held" });
  expect(link).toHaveAttribute("href", "/destinations");
});

test("a line about a destination leads to the destinations and not to a job", async () => {
  const told = { at: minutes(1), what: "destination", kind: "", queue: "", message: "api.x is down" };
  serve({ ...routes, "GET /api/v1/activity": () => [told] });
  show(<Activity />);
  expect(await screen.findByText("api.x is down")).toBeVisible();
  expect(screen.getByRole("link", { name: "api.x is down" })).toHaveAttribute("href", "/destinations");
  expect(screen.getAllByRole("link")).toHaveLength(1);
});

const course = (name: string, calls: number, fields: object = {}) => ({
  name,
  calls,
  wasted: calls - 100,
  failures: 1,
  callsWhileDown: calls - 90,
  dead: 0,
  peakPerSecond: 40,
  drainedAfter: 80,
  ideal: 60,
  callsPerSecond: [20, 0, 40, 20],
  ...fields,
});
const outage = {
  seconds: 240,
  downFrom: 60,
  downUntil: 120,
  arrivalsPerSecond: 20,
  capacityPerSecond: 40,
  collapsePerSecond: 60,
  courses: [course("redrive", 110), course("Sidekiq's formula", 4_500, { drainedAfter: undefined })],
};

test("what an outage would cost is drawn for the policy that is chosen, and for one's own when it is asked for", async () => {
  const log = serve({ ...routes, "POST /api/v1/policies/simulate": () => outage });
  const bodies = () => log.filter((asked) => asked.path.endsWith("/simulate")).map((asked) => asked.body);
  show(<Policies />);
  const picture = await screen.findByTestId("outage");
  expect(picture).toHaveTextContent("Down for 1 m: 20 calls reach it meanwhile, 0 jobs are given up");
  expect(screen.getAllByRole("img", { name: /calls, .* wasted/ })).toHaveLength(2);
  expect(screen.getByRole("row", { name: /Sidekiq’s formula 4,500 4,400 4,410 .* never/ })).toBeVisible();
  expect(bodies()).toEqual([
    { policy: presets[0]?.policy, arrivalsPerSecond: 20, capacityPerSecond: 40, outage: "1m" },
  ]);
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "Down for" }), "2m");
  await waitFor(() => expect(bodies().at(-1)).toMatchObject({ outage: "2m" }));
  fireEvent.change(screen.getByRole("textbox"), { target: { value: '{"maxRetries":2}' } });
  const before = bodies().length;
  await userEvent.click(screen.getByRole("button", { name: "Simulate an outage" }));
  await waitFor(() => expect(bodies().at(-1)).toMatchObject({ policy: { maxRetries: 2 } }));
  expect(bodies()).toHaveLength(before + 1);
});

test("a policy is previewed, one of one's own as it is written", async () => {
  const log = serve(routes);
  show(<Policies />);
  expect(await screen.findByText("2 retries; the last try comes 3s after the first failure.")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: /feed/ }));
  expect(location.search).toBe("?policy=feed");
  const editor = screen.getByRole("textbox");
  fireEvent.change(editor, { target: { value: "{" } });
  expect(screen.getByText("This is not JSON yet.")).toBeVisible();
  fireEvent.change(editor, { target: { value: '{"maxRetries":2}' } });
  await waitFor(() => expect(log.at(-1)?.body).toEqual({ policy: { maxRetries: 2 }, count: 20 }));
  expect(screen.getByRole("heading", { name: "A policy of your own" })).toBeVisible();
  // On a phone the presets are a list to choose from.
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "Presets" }), "feed");
  expect(screen.getByRole("heading", { name: "feed" })).toBeVisible();
});

test("on a phone the rarer filters are opened, and stand open while one of them is set", async () => {
  serve(routes);
  const { unmount } = show(<Jobs />);
  const more = await screen.findByRole("button", { name: "More filters" });
  expect(more).toHaveAttribute("aria-expanded", "false");
  await userEvent.click(more);
  expect(more).toHaveAttribute("aria-expanded", "true");
  unmount();
  history.replaceState(null, "", "/jobs?kind=http");
  show(<Jobs />);
  expect(await screen.findByRole("button", { name: "More filters" })).toHaveAttribute("aria-expanded", "true");
});

test("the activity log is filtered by what happened and by any word", async () => {
  serve(routes);
  show(<Activity />);
  await screen.findByText("finished at run 2");
  await userEvent.click(screen.getByRole("button", { name: "Needs a person" }));
  expect(screen.queryByText("finished at run 2")).toBeNull();
  await userEvent.type(screen.getByRole("textbox", { name: "Any word" }), "nothing like it");
  expect(screen.getByText("Nothing of that kind has happened lately.")).toBeVisible();
});

test("what is told again and again of a destination is one line that says how often and since when", async () => {
  const told = (at: string, message: string, job?: string) => ({
    at,
    what: "destination",
    kind: "",
    queue: "",
    message,
    job,
  });
  const pause = (minute: number) =>
    told(minutes(minute), `api.x asked for a pause until ${minutes(minute - 1)}: its jobs are held`, `j${minute}`);
  const back = (minute: number) => told(minutes(minute), "api.x is back", `j${minute}`);
  const other = told(minutes(2), "api.y is back");
  const jobs = [1, 2].map((n) => ({ ...line, job: `r${n}`, at: minutes(n) }));
  const lines = [pause(1), back(2), other, ...jobs, pause(3), back(4), pause(5)];
  serve({ ...routes, "GET /api/v1/activity": () => lines });
  show(<Activity />);
  await screen.findByText("api.y is back");
  expect(screen.getAllByText(/asked for a pause/)).toHaveLength(1);
  expect(screen.getAllByText("finished at run 2")).toHaveLength(2);
  const times = screen.getAllByTestId("times");
  expect(times.map((one) => one.textContent?.slice(0, 8))).toEqual(["×3 since", "×2 since"]);
  expect(times[0]?.querySelector("time")).toHaveAttribute("datetime", String(lines.at(-1)?.at));
});

test("a list of jobs has the last error of each in a line, but not of those that made it", async () => {
  const lastError = { class: "transient" as const, code: "DNS", message: "no such host", at: minutes(1) };
  const items = [
    jobView({ id: "a", lastError }),
    jobView({ id: "b", state: "succeeded", lastError: { ...lastError, message: "long over" } }),
  ];
  serve({ ...routes, "GET /api/v1/jobs": () => ({ items }) });
  show(<Jobs />);
  expect(await screen.findByText("no such host")).toBeVisible();
  expect(screen.getByText("DNS")).toBeVisible();
  expect(screen.queryByText("long over")).toBeNull();
});

test("a server that asks for a token gets one, and then shows what it has", async () => {
  let isIn = false;
  const sent: unknown[] = [];
  serve({
    ...routes,
    "GET /api/v1/session": () =>
      isIn ? { name: "ops", scopes: ["read"] } : new Refusal(401, "RETRY_AUTH_REQUIRED", "this needs a token"),
    "POST /api/v1/session": ({ body }) => {
      sent.push(body);
      isIn = (body as { token: string }).token === "rdv_good";
      return isIn
        ? { name: "ops", scopes: ["read"] }
        : new Refusal(401, "RETRY_AUTH_REQUIRED", "the token is not good");
    },
  });
  show(<Entrance />);
  const field = await screen.findByLabelText("Token");
  await userEvent.type(field, "rdv_bad{Enter}");
  expect(await screen.findByText("the token is not good")).toBeVisible();
  await userEvent.clear(field);
  await userEvent.type(field, "rdv_good{Enter}");
  expect(await screen.findByText("read-only")).toBeVisible();
  expect(sent).toEqual([{ token: "rdv_bad" }, { token: "rdv_good" }]);
  expect(screen.getByRole("button", { name: "Sign out ops" })).toBeVisible();
});

test("a session that ends while the page is open leads back to the token", async () => {
  let isOver = false;
  const over = () => new Refusal(401, "RETRY_AUTH_REQUIRED", "this needs a token");
  serve({
    ...routes,
    "GET /api/v1/session": () => (isOver ? over() : { name: "ops", scopes: ["read"] }),
    "GET /api/v1/jobs": () => (isOver ? over() : { items: [] }),
  });
  show(<Entrance />);
  await screen.findByTestId("health");
  isOver = true;
  await userEvent.click(screen.getAllByRole("link", { name: "Jobs" })[0] as HTMLElement);
  expect(await screen.findByLabelText("Token")).toBeVisible();
});

test("a store that is held says so on every page, and goes on when it is told to", async () => {
  let held = true;
  const resume = () => {
    held = false;
    return { held };
  };
  serve({ ...routes, "GET /api/v1/stats": () => ({ ...stats, held }), "POST /api/v1/resume": resume });
  show(<Entrance />);
  expect(await screen.findByText(/^Everything is held/)).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Resume" }));
  await screen.findAllByText("Everything goes on");
  await waitFor(() => expect(screen.queryByText(/^Everything is held/)).toBeNull());
});

test("the keys walk, open, search, help, and never act while somebody writes", async () => {
  serve(routes);
  show(<Entrance />);
  await screen.findByTestId("health");
  await screen.findByText("Parse task");
  await userEvent.keyboard("j");
  expect(document.activeElement).toHaveAttribute("data-row");
  await userEvent.keyboard("?");
  expect(await screen.findByRole("heading", { name: "Keys" })).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Close" }));
  await userEvent.keyboard("gj");
  expect(location.pathname).toBe("/jobs");
  await userEvent.keyboard("/");
  expect(document.activeElement).toBe(await screen.findByRole("textbox", { name: "Find" }));
  await userEvent.keyboard("gd");
  expect(location.pathname).toBe("/jobs");
});

test("the palette finds pages, settings and jobs by name", async () => {
  serve(routes);
  show(<Entrance />);
  await screen.findByTestId("health");
  await userEvent.keyboard("{Control>}k{/Control}");
  const field = await screen.findByRole("combobox", { name: "Commands" });
  await userEvent.type(field, "dead l{Enter}");
  expect(location.pathname).toBe("/dead");
  await userEvent.keyboard("{Control>}k{/Control}");
  await userEvent.type(
    await screen.findByRole("combobox", { name: "Commands" }),
    "theme: light{ArrowDown}{ArrowUp}{Enter}",
  );
  expect(document.documentElement.dataset.theme).toBe("light");
  await userEvent.keyboard("{Control>}k{/Control}");
  await userEvent.type(await screen.findByRole("combobox", { name: "Commands" }), ID);
  await userEvent.click(screen.getByRole("option", { name: `Open job ${ID}` }));
  expect(location.pathname).toBe(`/jobs/${ID}`);
});

test("the whole page speaks the other language when it is chosen", async () => {
  serve(routes);
  show(<Entrance />);
  await userEvent.click((await screen.findAllByRole("button", { name: "繁體中文" }))[0] as HTMLElement);
  expect(await screen.findByRole("heading", { name: "待重試項目" })).toBeVisible();
  expect(document.documentElement.lang).toBe("zh-TW");
  choose({ language: "en" });
});
