import { expect, test } from "vitest";
import { retryItem } from "../testing/server";
import { afterEvents, afterList, type Board, type JobEvent, LEAVES_AFTER_MS, ordered, standing, swept } from "./board";

const NOW = Date.parse("2026-11-16T12:00:00Z");
const at = (ms: number) => new Date(NOW + ms).toISOString();
const item = (id: string, dueIn: number) => retryItem({ id, nextAttemptAt: at(dueIn) });
const event = (id: string, what: string, fields: Partial<JobEvent> = {}): JobEvent => {
  return { at: at(0), job: id, kind: "http", queue: "default", event: what, ...fields };
};
const ids = (board: Board, held?: Board) => ordered(board, held).rows.map((row) => row.item.id);
const two = (): Board => afterList(new Map(), [item("a", 4_000), item("b", 1_000)], NOW);

test("the next one stands first", () => {
  expect(ids(two())).toEqual(["b", "a"]);
});

test("a row runs, fails and waits again with its new time, its error and one retry more", () => {
  let board = afterEvents(two(), [event("b", "started", { attempt: 3 })]);
  expect(board.get("b")?.phase).toBe("running");
  expect(board.get("a")?.phase).toBe("waiting");
  board = afterEvents(board, [
    event("b", "retry_scheduled", { dueAt: at(8_000), failures: 3, failure: { message: "busy" } }),
  ]);
  expect(board.get("b")).toMatchObject({
    phase: "waiting",
    item: { attemptCount: 3, lastError: "busy", nextAttemptAt: at(8_000) },
  });
  expect(ids(board)).toEqual(["a", "b"]);
});

test("a retry is counted as often as it says, whether a list came before it or its destination was at fault", () => {
  const told = event("b", "retry_scheduled", { dueAt: at(8_000), failures: 3, failure: { message: "busy" } });
  const listed = afterList(two(), [{ ...item("b", 8_000), attemptCount: 3 }], NOW + 2_000);
  for (const board of [two(), listed, afterEvents(two(), [told])]) {
    expect(afterEvents(board, [told]).get("b")?.item.attemptCount).toBe(3);
  }
});

test("of a job that is tried here from the start, the first failure is no retry yet", () => {
  const board = afterList(two(), [{ ...item("b", 8_000), queued: false, attemptCount: 0 }], NOW + 2_000);
  const failed = (failures: number) => event("b", "retry_scheduled", { dueAt: at(9_000), failures });
  expect([0, 1, 2].map((n) => afterEvents(board, [failed(n)]).get("b")?.item.attemptCount)).toEqual([0, 0, 1]);
});

test("a row leaves with its outcome, and only after it was seen", () => {
  for (const outcome of ["succeeded", "dead", "cancelled"] as const) {
    const board = afterEvents(two(), [event("b", outcome)]);
    expect(board.get("b")?.phase).toBe(outcome);
    expect(swept(board, NOW + LEAVES_AFTER_MS - 1).has("b")).toBe(true);
    expect(swept(board, NOW + LEAVES_AFTER_MS).has("b")).toBe(false);
    expect(swept(board, NOW + LEAVES_AFTER_MS).has("a")).toBe(true);
  }
});

test("a list that was asked for before an event does not undo it", () => {
  const running = afterEvents(two(), [event("b", "started")]);
  expect(afterList(running, [item("a", 4_000), item("b", 1_000)], NOW + 300).get("b")?.phase).toBe("running");
  expect(afterList(running, [item("a", 4_000), item("b", 9_000)], NOW + 3_000).get("b")?.phase).toBe("waiting");
});

test("a row that was due and is no longer listed is taken to run, and forgotten if nothing is heard of it", () => {
  const later = afterList(two(), [item("a", 4_000)], NOW + 1_000);
  expect(later.get("b")?.phase).toBe("running");
  expect(afterList(later, [item("a", 4_000)], NOW + 20_000).has("b")).toBe(false);
});

test("a row that was not due and is no longer listed is gone at once", () => {
  expect(afterList(two(), [item("b", 1_000)], NOW).has("a")).toBe(false);
});

test("while the order is held nothing moves, what has left stays to be seen, and what is new is counted", () => {
  const held = standing(ordered(two()).rows);
  const board = afterList(two(), [item("a", -1), item("b", 1_000), item("c", 500)], NOW);
  expect(ids(board, held)).toEqual(["b", "a"]);
  expect(ordered(board, held).outside).toBe(1);
  expect(ids(board)).toEqual(["a", "c", "b"]);
  expect(ids(new Map(), held)).toEqual(["b", "a"]);
});

test("events about jobs that are not shown change nothing, not even the object", () => {
  const board = two();
  expect(afterEvents(board, [event("z", "started"), event("a", "enqueued")])).toBe(board);
  expect(swept(board, NOW)).toBe(board);
});

test("retried by hand is due now; put back is due when it says", () => {
  let board = afterEvents(two(), [event("a", "retried")]);
  expect(board.get("a")?.item.nextAttemptAt).toBe(at(0));
  board = afterEvents(board, [event("a", "put_back", { dueAt: at(7_000) })]);
  expect(board.get("a")?.item.nextAttemptAt).toBe(at(7_000));
});
