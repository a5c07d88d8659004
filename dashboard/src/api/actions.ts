// What a person can do, each with the word that is said afterwards.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { serverClock } from "../clock";
import { type Toast, toasts } from "../toasts";
import { call, Refused } from "./client";
import type { LimitsForm } from "./schema";

type Said = Omit<Toast, "id">;

/** Says what went wrong, in the server's words. */
export function tellTrouble(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  const detail = error instanceof Refused && error.hint ? { detail: error.hint } : {};
  toasts.push({ tone: "bad", text: "toast.refused", values: { message: text }, ...detail });
}

export function useAction<T>(run: (what: T) => Promise<unknown>, said: (what: T) => Said | undefined) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: run,
    onSuccess: (_, what) => {
      const toast = said(what);
      if (toast) toasts.push(toast);
    },
    onError: tellTrouble,
    onSettled: () => client.invalidateQueries(),
  });
}

/** Brings a cancelled job back, to the time it was to run at if that is still to come. */
async function bringBack(id: string, dueAt: string | undefined): Promise<void> {
  await call("POST /api/v1/jobs/{id}/redrive", { path: { id } });
  if (dueAt && Date.parse(dueAt) > serverClock.now() + 1_000) {
    await call("POST /api/v1/jobs/{id}/reschedule", { path: { id }, body: { runAt: dueAt } });
  }
}

export function useRetryNow() {
  return useAction(
    ({ id }: { id: string }) => call("POST /api/v1/retry/{id}/trigger", { path: { id } }),
    () => ({ tone: "good", text: "toast.triggered" }),
  );
}

export function useCancel() {
  const client = useQueryClient();
  return useAction(
    ({ id }: { id: string; dueAt?: string | undefined }) => call("POST /api/v1/jobs/{id}/cancel", { path: { id } }),
    ({ id, dueAt }) => {
      const undo = () => {
        bringBack(id, dueAt)
          .catch(tellTrouble)
          .finally(() => client.invalidateQueries());
      };
      return { tone: "info", text: "toast.cancelled", action: { label: "toast.undo", run: undo } };
    },
  );
}

export function useRedrive() {
  return useAction(
    ({ id }: { id: string }) => call("POST /api/v1/jobs/{id}/redrive", { path: { id } }),
    () => ({ tone: "good", text: "toast.redriven" }),
  );
}

export function useForget() {
  return useAction(
    ({ id }: { id: string }) => call("DELETE /api/v1/jobs/{id}", { path: { id } }),
    () => ({ tone: "info", text: "toast.deleted" }),
  );
}

export function useSnooze() {
  return useAction(
    ({ id, delay }: { id: string; delay: string }) =>
      call("POST /api/v1/jobs/{id}/snooze", { path: { id }, body: { delay } }),
    ({ delay }) => ({ tone: "info", text: "toast.snoozed", values: { delay } }),
  );
}

function setPaused(name: string, paused: boolean) {
  return paused
    ? call("POST /api/v1/queues/{name}/pause", { path: { name } })
    : call("POST /api/v1/queues/{name}/resume", { path: { name } });
}

export function usePauseQueue() {
  const client = useQueryClient();
  return useAction(
    ({ name, paused }: { name: string; paused: boolean }) => setPaused(name, paused),
    ({ name, paused }) => {
      const undo = () => {
        setPaused(name, !paused)
          .catch(tellTrouble)
          .finally(() => client.invalidateQueries());
      };
      const text = paused ? "toast.paused" : "toast.resumed";
      return { tone: "info", text, values: { name }, action: { label: "toast.undo", run: undo } };
    },
  );
}

/** Starts a failed execution anew; where it is now is for the caller to show. */
export function useRetryExecution(started: (id: string) => void) {
  return useAction(
    async ({ id }: { id: string }) => {
      const made = await call("POST /api/v1/executions/{id}/retry", { path: { id } });
      started(made.id);
    },
    () => ({ tone: "good", text: "toast.anew" }),
  );
}

export function useCancelExecution() {
  return useAction(
    ({ id }: { id: string }) => call("POST /api/v1/executions/{id}/cancel", { path: { id } }),
    () => ({ tone: "info", text: "toast.execution.cancelled" }),
  );
}

export function useRetryNode() {
  return useAction(
    ({ id, node }: { id: string; node: string }) =>
      call("POST /api/v1/executions/{id}/nodes/{node}/retry", { path: { id, node } }),
    () => ({ tone: "good", text: "toast.triggered" }),
  );
}

/** What can be said of a destination, and what takes it back; nothing takes back what has gone. */
const backs = { pause: "resume", resume: "pause", up: undefined, down: "up" } as const;
export type Word = keyof typeof backs;

function sayOf(name: string, word: Word) {
  return call(`POST /api/v1/destinations/{name}/${word}`, { path: { name } });
}

export function useSayOfDestination() {
  const client = useQueryClient();
  return useAction(
    ({ name, word }: { name: string; word: Word }) => sayOf(name, word),
    ({ name, word }) => {
      const said = { tone: "info", text: `toast.gate.${word}`, values: { name } } as const;
      const back = backs[word];
      if (!back) return said;
      const undo = () => {
        sayOf(name, back)
          .catch(tellTrouble)
          .finally(() => client.invalidateQueries());
      };
      return { ...said, action: { label: "toast.undo", run: undo } };
    },
  );
}

export function useLimit() {
  return useAction(
    ({ pattern, limits }: { pattern: string; limits: LimitsForm }) =>
      call("PUT /api/v1/destinations/limits/{pattern}", { path: { pattern }, body: limits }),
    ({ pattern }) => ({ tone: "good", text: "toast.limited", values: { name: pattern } }),
  );
}

export function useUnlimit() {
  return useAction(
    ({ pattern }: { pattern: string }) => call("DELETE /api/v1/destinations/limits/{pattern}", { path: { pattern } }),
    ({ pattern }) => ({ tone: "info", text: "toast.unlimited", values: { name: pattern } }),
  );
}

export function useResumeAll() {
  return useAction(
    (_: undefined) => call("POST /api/v1/resume"),
    () => ({ tone: "good", text: "toast.goeson" }),
  );
}
