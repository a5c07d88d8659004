// The retry queue as a person watches it. What the server lists and what its events say are put together here: a row
// counts down, is due, runs, and leaves with its outcome. Pure: everything that happens is an argument.
import type { RetryView } from "./schema";

export type Phase = "waiting" | "running" | "succeeded" | "dead" | "cancelled";

export interface Row {
  item: RetryView;
  phase: Phase;
  /** When it came into this phase, by the server's clock. */
  since: number;
}

/** What happened to a job, as the stream tells it. */
export interface JobEvent {
  at: string;
  job: string;
  kind: string;
  queue: string;
  event: string;
  attempt?: number;
  failures?: number;
  dueAt?: string;
  why?: string;
  failure?: { message?: string };
}

/** How long a row shows its outcome before it is gone. */
export const LEAVES_AFTER_MS = 2_400;
/** A row that runs and is not heard of again was settled by another server: it goes when the list says so for so long. */
const FORGOTTEN_AFTER_MS = 10_000;

export type Board = ReadonlyMap<string, Row>;

const isFinal = (phase: Phase) => phase === "succeeded" || phase === "dead" || phase === "cancelled";

/** After events. Only rows that are there change: what is new comes with the next list. */
export function afterEvents(board: Board, events: readonly JobEvent[]): Board {
  let next: Map<string, Row> | undefined;
  for (const event of events) {
    const row = (next ?? board).get(event.job);
    const changed = row && afterEvent(row, event);
    if (!changed || changed === row) continue;
    next ??= new Map(board);
    next.set(event.job, changed);
  }
  return next ?? board;
}

function afterEvent(row: Row, event: JobEvent): Row {
  const since = Date.parse(event.at);
  switch (event.event) {
    case "started":
      return { ...row, phase: "running", since };
    case "succeeded":
    case "dead":
    case "cancelled":
      return { ...row, phase: event.event, since };
    case "retried":
      return { ...row, item: { ...row.item, nextAttemptAt: event.at, held: null } };
    case "retry_scheduled": {
      const item = {
        ...row.item,
        // What failed elsewhere was queued here for its first retry; of other jobs the first failure was the first try's.
        attemptCount:
          event.failures === undefined
            ? row.item.attemptCount
            : Math.max(0, event.failures - (row.item.queued ? 0 : 1)),
        nextAttemptAt: event.dueAt ?? row.item.nextAttemptAt,
        lastError: event.failure?.message ?? row.item.lastError ?? null,
        held: null,
      };
      return { item, phase: "waiting", since };
    }
    case "put_back":
    case "rescheduled":
      return { item: { ...row.item, nextAttemptAt: event.dueAt ?? row.item.nextAttemptAt }, phase: "waiting", since };
    default:
      return row;
  }
}

/** After a list of what waits now. */
export function afterList(board: Board, items: readonly RetryView[], now: number): Board {
  const next = new Map<string, Row>();
  for (const item of items) {
    const row = board.get(item.id);
    // A list that was asked for before an event must not undo it.
    const isOlder = row && row.phase !== "waiting" && now - row.since < 1_000;
    next.set(item.id, isOlder ? row : { item, phase: "waiting", since: row?.phase === "waiting" ? row.since : now });
  }
  for (const [id, row] of board) {
    if (next.has(id)) continue;
    const kept = unlisted(row, now);
    if (kept) next.set(id, kept);
  }
  return next;
}

/** A row that the list does not have any more. */
function unlisted(row: Row, now: number): Row | undefined {
  if (isFinal(row.phase)) return now - row.since < LEAVES_AFTER_MS ? row : undefined;
  if (row.phase === "running") return now - row.since < FORGOTTEN_AFTER_MS ? row : undefined;
  const isDue = Date.parse(row.item.nextAttemptAt) <= now + 500;
  return isDue ? { ...row, phase: "running", since: now } : undefined;
}

/** Without the rows that have shown their outcome for long enough. */
export function swept(board: Board, now: number): Board {
  const stays = (row: Row) => !isFinal(row.phase) || now - row.since < LEAVES_AFTER_MS;
  if ([...board.values()].every(stays)) return board;
  return new Map([...board].filter(([, row]) => stays(row)));
}

/** The next one first. While `held`, nothing moves: rows stay where they were, also those that have left, and what is new
 * waits outside. */
export function ordered(board: Board, held?: Board): { rows: Row[]; outside: number } {
  if (held) {
    const rows = [...held].map(([id, row]) => board.get(id) ?? row);
    return { rows, outside: [...board.keys()].filter((id) => !held.has(id)).length };
  }
  const due = (row: Row) => Date.parse(row.item.nextAttemptAt);
  const rows = [...board.values()].sort(
    (one, other) => due(one) - due(other) || one.item.id.localeCompare(other.item.id),
  );
  return { rows, outside: 0 };
}

/** The rows as they stand, to be held. */
export function standing(rows: readonly Row[]): Board {
  return new Map(rows.map((row) => [row.item.id, row]));
}
