import { act, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import { choose } from "../settings";
import { jobView, READER, Refusal, retryItem, serve, show } from "../testing/server";
import { Countdown } from "./basics";
import { backoffText, RetryQueuePanel } from "./retry-queue";

const ID = "01a1e333-4a4a-7000-bb8b-cbbcfc87c940";
const totals = { totalPending: 1, totalSucceeded: 15, totalFailed: 2 };
const pending = (items = [retryItem()]) => ({ "GET /api/v1/retry/pending": () => ({ items, stats: totals }) });

beforeEach(() => choose({ language: "zh-TW" }));

test("the panel has its title, a count, and a row with everything a person needs", async () => {
  serve(pending());
  show(<RetryQueuePanel />);
  await screen.findByText("解析任務");
  expect(screen.getByRole("heading", { name: "待重試項目" })).toBeVisible();
  expect(screen.getByTestId("badge")).toHaveTextContent("1");
  expect(screen.getByText("嘗試 2/4")).toBeVisible();
  expect(screen.getByText("上次錯誤：TMDb API timeout")).toBeVisible();
  // The clock of a server that is asked for the first time is known to the second.
  expect(screen.getByText(/^[2-4]s$/).parentElement).toHaveTextContent(/[2-4]s 後重試$/);
  expect(screen.getByRole("button", { name: "立即重試" })).toBeEnabled();
  expect(screen.getByRole("button", { name: "取消" })).toBeEnabled();
});

test("of what was queued, parsing is called so and anything else fetching, in both languages", async () => {
  const items = ["parse", "metadata_fetch", "poster"].map((taskType, index) =>
    retryItem({ id: `${ID}${index}`, taskType }),
  );
  const words = [
    ["zh-TW", "解析任務", "元數據獲取"],
    ["en", "Parse task", "Metadata fetch"],
  ] as const;
  for (const [language, parse, fetching] of words) {
    choose({ language });
    serve(pending(items));
    const { unmount } = show(<RetryQueuePanel />);
    expect(await screen.findByText(parse)).toBeVisible();
    expect(screen.getAllByText(fetching)).toHaveLength(2);
    expect(screen.getByTestId("badge")).toHaveTextContent("3");
    unmount();
  }
});

test("a row that is held says so, by what, and how long that is known to last", async () => {
  choose({ language: "en" });
  const due = { nextAttemptAt: new Date(Date.now() - 60_000).toISOString(), timeUntilRetry: "0s" };
  const inThree = new Date(Date.now() + 3_000).toISOString();
  const gate = { by: "destination", name: "api.x", state: "shut" };
  serve(
    pending([
      retryItem({ ...due, id: `${ID}1`, held: { ...gate, reason: "retry_after", until: inThree } }),
      retryItem({ ...due, id: `${ID}2`, held: { ...gate, reason: "failing", probeAt: inThree } }),
      retryItem({ ...due, id: `${ID}3`, held: { by: "queue", name: "mail", state: "paused" } }),
      retryItem({ ...due, id: `${ID}4` }),
    ]),
  );
  show(<RetryQueuePanel />);
  await screen.findByText("api.x asked for a pause.");
  const rows = [...document.querySelectorAll("[data-phase]")].map((row) => row.textContent ?? "");
  expect(rows[0]).toMatch(/held, goes in [2-4]s/);
  expect(rows[1]).toMatch(/held, asked in [2-4]s/);
  expect(rows[1]).toContain("api.x is down.");
  expect(rows[2]).toContain("Queue mail is paused.");
  expect(rows[2]).toMatch(/heldRetry now/);
  expect(rows[3]).toMatch(/dueRetry now/);
});

test("a job of the engine's own is called by its kind, with where it goes if it has no key", async () => {
  const own = { queued: false, destination: "api.example" };
  serve(
    pending([
      retryItem({ ...own, id: `${ID}1`, taskId: `${ID}1`, taskType: "http" }),
      retryItem({ ...own, id: `${ID}2`, taskId: "order-17", taskType: "invoice" }),
    ]),
  );
  show(<RetryQueuePanel />);
  expect(await screen.findByRole("link", { name: "HTTP 呼叫 api.example" })).toBeVisible();
  expect(screen.getByRole("link", { name: "invoice order-17" })).toBeVisible();
});

test("while nothing is pushed the list is asked for again every second", async () => {
  vi.useFakeTimers();
  const log = serve(pending());
  show(<RetryQueuePanel />);
  const asked = () => log.filter(({ path }) => path === "/api/v1/retry/pending").length;
  await act(() => vi.advanceTimersByTimeAsync(100));
  expect(asked()).toBe(1);
  await act(() => vi.advanceTimersByTimeAsync(3_000));
  expect(asked()).toBe(4);
});

test("in English the same row reads in English", async () => {
  choose({ language: "en" });
  serve(pending());
  show(<RetryQueuePanel />);
  expect(await screen.findByText("Parse task")).toBeVisible();
  expect(screen.getByText("retry 2 of 4")).toBeVisible();
  expect(screen.getByText("Last error: TMDb API timeout")).toBeVisible();
  expect(screen.getByText(/^[2-4]s$/).parentElement).toHaveTextContent(/^in [2-4]s$/);
});

test("while it loads there is a skeleton, and when nothing waits there is no panel", async () => {
  let answer: (value: unknown) => void = () => {};
  serve({ "GET /api/v1/retry/pending": () => new Promise((resolve) => (answer = resolve)) });
  show(<RetryQueuePanel empty={<p>nothing</p>} />);
  expect(screen.getByRole("status", { name: "載入中…" })).toBeInTheDocument();
  expect(screen.getByRole("heading", { name: "待重試項目" })).toBeVisible();
  answer({ items: [], stats: totals });
  expect(await screen.findByText("nothing")).toBeVisible();
  expect(screen.queryByRole("heading", { name: "待重試項目" })).toBeNull();
});

test("a server that refuses is quoted, and asked again on demand", async () => {
  let refuses = true;
  const items = [retryItem()];
  serve({
    "GET /api/v1/retry/pending": () => (refuses ? new Refusal(422, "X", "no such luck") : { items, stats: totals }),
  });
  show(<RetryQueuePanel />);
  expect(await screen.findByRole("alert")).toHaveTextContent("no such luck");
  refuses = false;
  await userEvent.click(screen.getByRole("button", { name: "再試一次" }));
  expect(await screen.findByText("解析任務")).toBeVisible();
});

test("retry now asks once, is disabled meanwhile, says so, and tells whoever listens", async () => {
  let answer: (value: unknown) => void = () => {};
  const log = serve({ ...pending(), "POST /api/v1/retry/*": () => new Promise((resolve) => (answer = resolve)) });
  const onRefresh = vi.fn();
  show(<RetryQueuePanel onRefresh={onRefresh} />);
  const button = await screen.findByRole("button", { name: "立即重試" });
  await userEvent.click(button);
  expect(button).toBeDisabled();
  expect(log.filter((asked) => asked.method === "POST").map((asked) => asked.path)).toEqual([
    `/api/v1/retry/${ID}/trigger`,
  ]);
  answer(retryItem());
  expect(await screen.findByText("已觸發立即重試")).toBeVisible();
  expect(onRefresh).toHaveBeenCalledOnce();
});

test("cancel says so and can be undone", async () => {
  const log = serve({ ...pending(), "POST /api/v1/jobs/*": () => jobView() });
  show(<RetryQueuePanel />);
  await userEvent.click(await screen.findByRole("button", { name: "取消" }));
  expect(await screen.findByText("已取消重試")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "復原" }));
  await waitFor(() => {
    const posts = log.filter((asked) => asked.method === "POST").map((asked) => asked.path.split("/").pop());
    expect(posts.slice(0, 2)).toEqual(["cancel", "redrive"]);
  });
});

test("what the server refuses is said in its words", async () => {
  serve({
    ...pending(),
    "POST /api/v1/retry/*": () => new Refusal(409, "RETRY_EXHAUSTED", "it is dead", "bring it back"),
  });
  choose({ language: "en" });
  show(<RetryQueuePanel />);
  await userEvent.click(await screen.findByRole("button", { name: "Retry now" }));
  expect(await screen.findByText("Not done: it is dead")).toBeVisible();
  expect(screen.getByText("bring it back")).toBeVisible();
});

test("a reader sees the queue and no button", async () => {
  serve(pending());
  show(<RetryQueuePanel />, READER);
  await screen.findByText("解析任務");
  expect(screen.queryByRole("button", { name: "立即重試" })).toBeNull();
  expect(screen.queryByRole("button", { name: "取消" })).toBeNull();
});

test("rows beyond those shown are counted behind a link", async () => {
  choose({ language: "en" });
  serve(pending(Array.from({ length: 5 }, (_, index) => retryItem({ id: `${ID}${index}`, taskId: `t${index}` }))));
  show(<RetryQueuePanel show={2} />);
  expect(await screen.findByRole("link", { name: "All 5" })).toHaveAttribute("href", "/retries");
  expect(document.querySelectorAll("[data-phase]")).toHaveLength(2);
});

test("the popover explains the delay: policy, plan, chance", async () => {
  choose({ language: "en" });
  const endedAt = "2026-11-16T12:00:00.000Z";
  const nextAt = "2026-11-16T12:00:02.150Z";
  const attempt = {
    attempt: 2,
    startedAt: endedAt,
    endedAt,
    ending: "failed",
    nextAt,
    rule: "status 503",
    failure: { class: "transient", message: "busy" },
  };
  serve({
    ...pending(),
    [`GET /api/v1/jobs/${ID}/explain`]: () => ({ id: ID, state: "waiting", summary: "waiting for 3s more", next: [] }),
    [`GET /api/v1/jobs/${ID}`]: () => ({ ...jobView(), attempts: [attempt] }),
    "POST /api/v1/policies/preview": () => ({
      policy: {},
      delays: [1000, 2000].map((delayMs, i) => ({ retry: i + 1, delay: "", after: "", delayMs })),
    }),
  });
  show(<RetryQueuePanel />);
  await userEvent.click(await screen.findByRole("button", { name: "Why this delay?" }));
  const popover = await screen.findByRole("dialog", { name: "Why this delay?" });
  await within(popover).findByText("waiting for 3s more");
  expect(popover).toHaveTextContent("media");
  expect(popover).toHaveTextContent("exponential 1s ×2 ≤ 8s ±10 %");
  await waitFor(() => expect(popover).toHaveTextContent("+150 ms"));
  await userEvent.keyboard("{Escape}");
  expect(screen.queryByRole("dialog")).toBeNull();
});

test("a back-off is told in one line, whatever its kind", () => {
  expect(backoffText({ backoff: { kind: "fixed", delay: "5m" }, jitter: { kind: "none" } })).toBe("fixed 5m");
  expect(
    backoffText({
      backoff: { kind: "exponential", base: "1s", factor: 2 },
      jitter: { kind: "additive", max: "500ms" },
    }),
  ).toBe("exponential 1s ×2 +0–500ms");
  expect(backoffText({ backoff: { kind: "schedule", delays: ["7d", "14d"] }, jitter: { kind: "full" } })).toBe(
    "schedule 7d, 14d full",
  );
});

test("a countdown goes down by the second, says that it is due, and leaves no timer behind", () => {
  vi.useFakeTimers();
  const until = new Date(Date.now() + 2_500).toISOString();
  const { unmount } = show(<Countdown until={until} />);
  const shown = () => document.querySelector("time")?.textContent;
  expect(shown()).toBe("3s");
  act(() => vi.advanceTimersByTime(1_000));
  expect(shown()).toBe("2s");
  act(() => vi.advanceTimersByTime(1_750));
  expect(shown()).toBe("即將重試");
  unmount();
  expect(vi.getTimerCount()).toBe(0);
});
