import { act, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import type { JobEvent } from "./api/board";
import { jobView, serve, show } from "./testing/server";
import { outcomes, tellNotice, tellOutcomes, toasts } from "./toasts";

const event = (what: string, fields: Partial<JobEvent> = {}): JobEvent => {
  return { at: "2026-11-16T12:00:00Z", job: "j1", kind: "parse", queue: "q", event: what, ...fields };
};
let now = 0;
beforeEach(() => {
  // Far enough from the test before, so that nothing is counted together.
  now += 1_000_000;
  serve({});
});

test("a success after a retry is told; one at the first attempt is not", () => {
  show(null);
  act(() => tellOutcomes([event("succeeded", { failures: 0 })], now));
  expect(toasts.all()).toEqual([]);
  act(() => tellOutcomes([event("succeeded", { failures: 2 })], now));
  expect(screen.getByText("Parse task succeeded after retry")).toBeVisible();
  expect(screen.getByRole("link", { name: "Open" })).toHaveAttribute("href", "/jobs/j1");
});

test("a job is called what a person calls it, as soon as that is known", async () => {
  serve({ "GET /api/v1/jobs/j1": () => jobView({ kind: "http", destination: "api.example" }) });
  show(null);
  act(() => tellOutcomes([event("dead", { why: "exhausted", kind: "http" })], now));
  expect(screen.getByText("HTTP call: all retries are exhausted")).toBeVisible();
  expect(await screen.findByText("HTTP call to api.example: all retries are exhausted")).toBeVisible();
});

test("exhausted retries are told with the last error", () => {
  show(null);
  act(() => tellOutcomes([event("dead", { why: "exhausted", failure: { message: "still busy" } })], now));
  expect(screen.getByText("Parse task: all retries are exhausted")).toBeVisible();
  expect(screen.getByText("still busy")).toBeVisible();
});

test("a storm is one toast that counts", () => {
  show(null);
  for (let i = 0; i < 50; i += 1)
    act(() =>
      tellOutcomes(
        Array.from({ length: 10 }, () => event("dead", { why: "permanent" })),
        now + i * 10,
      ),
    );
  expect(toasts.all()).toHaveLength(1);
  expect(screen.getByText("500 jobs need a person")).toBeVisible();
  expect(screen.getByRole("link", { name: "Show" })).toHaveAttribute("href", "/dead");
});

test("later outcomes are counted anew", () => {
  show(null);
  act(() => tellOutcomes([event("succeeded", { failures: 1 }), event("succeeded", { failures: 1 })], now));
  expect(screen.getByText("2 jobs succeeded after retry")).toBeVisible();
  act(() => tellOutcomes([event("succeeded", { failures: 1 })], now + 60_000));
  expect(screen.getByText("Parse task succeeded after retry")).toBeVisible();
});

test("outcomes are sorted by what became of the job", () => {
  const all = [event("succeeded", { failures: 1 }), event("dead"), event("started"), event("succeeded")];
  expect(outcomes(all)).toEqual({ recovered: [all[0]], dead: [all[1]] });
});

test("a toast goes by itself, or when it is told to, and at most four are there", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  show(null);
  act(() => {
    for (const name of ["a", "b", "c", "d", "e"]) toasts.push({ tone: "info", text: "toast.paused", values: { name } });
  });
  expect(toasts.all()).toHaveLength(4);
  await userEvent.click(screen.getAllByRole("button", { name: "Dismiss" })[0] as HTMLElement);
  expect(toasts.all()).toHaveLength(3);
  act(() => vi.advanceTimersByTime(6_500));
  expect(toasts.all()).toHaveLength(0);
});

test("an action is run once and takes its toast away", async () => {
  const run = vi.fn();
  show(null);
  act(() => toasts.push({ tone: "info", text: "toast.cancelled", action: { label: "toast.undo", run } }));
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));
  expect(run).toHaveBeenCalledOnce();
  expect(toasts.all()).toHaveLength(0);
});

test("a failure rate is told in the server's words; a notice about one job is not told twice", () => {
  show(null);
  act(() => tellNotice({ what: "dead", message: "one job" }));
  expect(toasts.all()).toEqual([]);
  act(() => tellNotice({ what: "failure_rate", message: "half of all attempts fail" }));
  expect(screen.getByText("half of all attempts fail")).toBeVisible();
  act(() => tellNotice({ what: "failure_rate_recovered", message: "they succeed again" }));
  expect(toasts.all()).toHaveLength(1);
});
