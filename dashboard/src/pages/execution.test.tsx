import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import type { ExecutionView, NodeView } from "../api/schema";
import { DRAWN_MAX, Graph, layout } from "../parts/graph";
import { choose } from "../settings";
import { READER, Refusal, serve, show } from "../testing/server";
import { Execution } from "./execution";
import { Executions } from "./executions";

const ID = "01a1e333-4a4a-7000-bb8b-cbbcfc87c940";
const ago = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString();

function node(nodeId: string, after: string[], fields: Partial<NodeView> = {}): NodeView {
  return {
    nodeId,
    jobId: `job-${nodeId}`,
    kind: "http",
    after,
    state: "succeeded",
    attempt: 1,
    failures: 0,
    ...fields,
  };
}

function execution(fields: Partial<ExecutionView> = {}): ExecutionView {
  return {
    id: ID,
    state: "dead",
    queue: "default",
    labels: {},
    counts: { total: 4, waiting: 1, running: 0, succeeded: 2, dead: 1, cancelled: 0 },
    createdAt: ago(5),
    retry: 0,
    lastError: 'node "b" is dead: no such account',
    policy: {},
    input: { order: 17 },
    nodes: [
      node("a", []),
      node("b", ["a"], { state: "dead", failures: 2, retriesAllowed: 2, lastError: "no such account" }),
      node("c", ["a"]),
      node("d", ["b", "c"], { state: "waiting", reason: "dependency", attempt: 0 }),
    ],
    ...fields,
  };
}

test("each step is drawn behind all that it comes after", () => {
  const { placed } = layout(execution().nodes);
  const x = (id: string) => placed.get(id)?.x ?? -1;
  expect(x("a")).toBeLessThan(x("b"));
  expect(x("b")).toBe(x("c"));
  expect(x("c")).toBeLessThan(x("d"));
  const circle = layout([node("a", ["b"]), node("b", ["a"])]);
  expect(circle.placed.size).toBe(2);
});

test("the list says how far each execution has come and what it stopped at", async () => {
  serve({ "GET /api/v1/executions": () => ({ items: [execution()] }) });
  show(<Executions />);
  expect(await screen.findByText("2 of 4")).toBeInTheDocument();
  expect(screen.getByText('node "b" is dead: no such account')).toBeInTheDocument();
});

test("a failed step can be run again and a failed execution started anew", async () => {
  const asked = serve({
    [`GET /api/v1/executions/${ID}`]: () => execution(),
    [`POST /api/v1/executions/${ID}/nodes/b/retry`]: () => execution(),
    [`POST /api/v1/executions/${ID}/retry`]: () => execution({ id: "new", retryOf: ID }),
  });
  show(<Execution id={ID} />);
  const graph = await screen.findByTestId("graph");
  expect(within(graph).getByText("b: dead")).toBeInTheDocument();
  expect(screen.getByText("after b, c")).toBeInTheDocument();
  await userEvent.click(screen.getByRole("button", { name: "Retry now" }));
  await userEvent.click(screen.getByRole("button", { name: "Start anew" }));
  await waitFor(() => expect(asked.filter((one) => one.method === "POST")).toHaveLength(2));
  expect(window.location.pathname).toBe("/executions/new");
});

test("whoever may only read is offered nothing to do", async () => {
  serve({ [`GET /api/v1/executions/${ID}`]: () => execution() });
  show(<Execution id={ID} />, READER);
  await screen.findByTestId("graph");
  expect(screen.queryByRole("button", { name: "Start anew" })).toBeNull();
  expect(screen.queryByRole("button", { name: "Retry now" })).toBeNull();
});

test("an execution that was started anew leads to the one that took its place", async () => {
  serve({ [`GET /api/v1/executions/${ID}`]: () => execution({ state: "retried", retriedBy: "other-execution" }) });
  show(<Execution id={ID} />);
  const link = await screen.findByRole("link", { name: /has taken its place/ });
  expect(link).toHaveAttribute("href", "/executions/other-execution");
  expect(screen.queryByRole("button", { name: "Retry now" })).toBeNull();
});

test("a graph that is too large is listed and not drawn", () => {
  const nodes = Array.from({ length: DRAWN_MAX + 1 }, (_, index) => node(`n${index}`, []));
  show(<Graph nodes={nodes} />);
  expect(screen.getByText(/too many for a picture/)).toBeInTheDocument();
  expect(screen.queryByTestId("graph")).toBeNull();
});

test("an execution that is under way can be cancelled", async () => {
  const asked = serve({
    [`GET /api/v1/executions/${ID}`]: () => execution({ state: "running" }),
    [`POST /api/v1/executions/${ID}/cancel`]: () => execution({ state: "cancelled" }),
  });
  show(<Execution id={ID} />);
  await userEvent.click(await screen.findByRole("button", { name: "Cancel" }));
  await waitFor(() => expect(asked.some((one) => one.path.endsWith("/cancel"))).toBe(true));
});

test("an execution that is gone is said to be gone, in the reader's language", async () => {
  serve({ [`GET /api/v1/executions/${ID}`]: () => new Refusal(404, "RETRY_NOT_FOUND", "there is no execution") });
  choose({ language: "zh-TW" });
  show(<Execution id={ID} />);
  expect(await screen.findByText(/找不到執行/)).toBeInTheDocument();
  choose({ language: "en" });
});
