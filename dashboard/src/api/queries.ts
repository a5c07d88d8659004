// What pages ask for, under which name it is kept, and how often it is asked again.
//
// While the stream is open, events say when to ask; a slow look beside it finds what other servers of the store did.
// Without a stream pages ask by themselves. Paused, nothing is asked.
import { keepPreviousData, QueryCache, QueryClient, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState, useSyncExternalStore } from "react";
import { onTick, serverClock } from "../clock";
import { tellNotice, tellOutcomes } from "../toasts";
import { afterEvents, afterList, type Board, swept } from "./board";
import { call, callExact, Refused } from "./client";
import { live } from "./live";
import type { PolicyForm, Routes } from "./schema";

export const PAGE = 50;
export const PENDING_MAX = 100;

export function newClient(): QueryClient {
  // A session that has ended is noticed by whoever asks next; then it is asked who is looking.
  const onError = (error: Error) => {
    if (error instanceof Refused && error.status === 401) client.invalidateQueries({ queryKey: ["session"] });
  };
  const client = new QueryClient({
    queryCache: new QueryCache({ onError }),
    defaultOptions: {
      queries: {
        retry: (failures, error) =>
          failures < 2 && error instanceof Refused && (error.status === 0 || error.status >= 500),
        retryDelay: 500,
        refetchOnWindowFocus: false,
        staleTime: 500,
        placeholderData: keepPreviousData,
      },
    },
  });
  return client;
}

export function useLive() {
  return useSyncExternalStore(live.watch, () => live.state);
}

/** How often to ask again: `listening` while events come, `asking` while none do. */
function useAgain(listening: number, asking: number): number | false {
  const state = useLive();
  if (state === "paused") return false;
  return state === "live" ? listening : asking;
}

/** Asks again for what is on the screen when something has happened, once a second at most; and tells outcomes. */
export function useLiveUpdates(): void {
  const client = useQueryClient();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let asked = 0;
    const stopNotices = live.hearNotices(tellNotice);
    const stop = live.hear((events) => {
      tellOutcomes(events, Date.now());
      const wait = Math.max(0, asked + 1_000 - Date.now());
      timer ??= setTimeout(() => {
        timer = undefined;
        // It may have been paused meanwhile.
        if (live.state === "paused") return;
        asked = Date.now();
        client.invalidateQueries({ predicate: (query) => query.queryKey[0] === "live" });
      }, wait);
    });
    live.start();
    return () => {
      clearTimeout(timer);
      stop();
      stopNotices();
      live.stop();
    };
  }, [client]);
}

export function useStats() {
  const refetchInterval = useAgain(5_000, 2_000);
  return useQuery({ queryKey: ["live", "stats"], queryFn: () => call("GET /api/v1/stats"), refetchInterval });
}

export function usePending(limit: number) {
  const refetchInterval = useAgain(2_000, 1_000);
  return useQuery({
    queryKey: ["live", "pending", limit],
    queryFn: () => call("GET /api/v1/retry/pending", { query: { limit } }),
    refetchInterval,
  });
}

/** The retry queue, row by row. */
export function useRetryBoard(limit: number) {
  const query = usePending(limit);
  const [board, setBoard] = useState<Board>(new Map());
  const { data, dataUpdatedAt } = query;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a list that is the same again is news too
  useEffect(() => {
    if (data) setBoard((before) => afterList(before, data.items, serverClock.now()));
  }, [data, dataUpdatedAt]);
  useEffect(() => live.hear((events) => setBoard((before) => afterEvents(before, events))), []);
  useEffect(() => onTick(() => setBoard((before) => swept(before, serverClock.now()))), []);
  return { ...query, board, hasMore: Boolean(data?.nextCursor) };
}

export function useActivity(limit: number) {
  const refetchInterval = useAgain(5_000, 2_000);
  return useQuery({
    queryKey: ["live", "activity", limit],
    queryFn: () => call("GET /api/v1/activity", { query: { limit } }),
    refetchInterval,
  });
}

export type JobFilter = Omit<Routes["GET /api/v1/jobs"]["query"], "limit" | "cursor">;

export function useJobs(filter: JobFilter, cursor?: string) {
  const refetchInterval = useAgain(5_000, 2_000);
  const query = { ...filter, limit: PAGE, ...(cursor ? { cursor } : {}) };
  return useQuery({
    queryKey: ["live", "jobs", query],
    queryFn: ({ signal }) => call("GET /api/v1/jobs", { query, signal }),
    refetchInterval,
  });
}

/** The newest jobs of a state, for a picture of where they come from. Asked for seldom: whole jobs are large. */
export function useSample(state: "waiting" | "dead", limit = 100) {
  const refetchInterval = useAgain(15_000, 15_000);
  return useQuery({
    queryKey: ["sample", state, limit],
    queryFn: () => call("GET /api/v1/jobs", { query: { state, limit } }),
    refetchInterval,
  });
}

export function useJob(id: string) {
  const refetchInterval = useAgain(5_000, 1_000);
  return useQuery({
    queryKey: ["live", "job", id],
    queryFn: () => callExact("GET /api/v1/jobs/{id}", { path: { id } }),
    refetchInterval,
    placeholderData: undefined,
  });
}

export function useExplain(id: string, enabled = true) {
  const refetchInterval = useAgain(5_000, 2_000);
  return useQuery({
    queryKey: ["live", "explain", id],
    queryFn: () => call("GET /api/v1/jobs/{id}/explain", { path: { id } }),
    refetchInterval,
    enabled,
    placeholderData: undefined,
  });
}

/** Who has changed a job, the last change first. */
export function useAudit(id: string) {
  return useQuery({
    queryKey: ["live", "audit", id],
    queryFn: () => call("GET /api/v1/audit", { query: { jobId: id, limit: 50 } }),
    placeholderData: undefined,
  });
}

export function useGroups(limit = 100) {
  const refetchInterval = useAgain(5_000, 5_000);
  return useQuery({
    queryKey: ["live", "groups", limit],
    queryFn: () => call("GET /api/v1/dead/groups", { query: { limit } }),
    refetchInterval,
  });
}

export function useQueues() {
  const refetchInterval = useAgain(5_000, 2_000);
  return useQuery({ queryKey: ["live", "queues"], queryFn: () => call("GET /api/v1/queues"), refetchInterval });
}

export function useExecutions(cursor?: string) {
  const refetchInterval = useAgain(5_000, 2_000);
  const query = { limit: PAGE, ...(cursor ? { cursor } : {}) };
  return useQuery({
    queryKey: ["live", "executions", query],
    queryFn: () => call("GET /api/v1/executions", { query }),
    refetchInterval,
  });
}

/** The destinations that have something to say. */
export function useDestinations() {
  const refetchInterval = useAgain(2_000, 2_000);
  return useQuery({
    queryKey: ["live", "destinations"],
    queryFn: () => call("GET /api/v1/destinations"),
    refetchInterval,
  });
}

export function useExecution(id: string) {
  const refetchInterval = useAgain(5_000, 1_000);
  return useQuery({
    queryKey: ["live", "execution", id],
    queryFn: () => callExact("GET /api/v1/executions/{id}", { path: { id } }),
    refetchInterval,
    placeholderData: undefined,
  });
}

export function useLimits() {
  const refetchInterval = useAgain(10_000, 10_000);
  return useQuery({
    queryKey: ["limits"],
    queryFn: () => call("GET /api/v1/destinations/limits"),
    refetchInterval,
  });
}

export function usePresets() {
  return useQuery({ queryKey: ["presets"], queryFn: () => call("GET /api/v1/policies/presets"), staleTime: 60_000 });
}

/** What a policy would do. */
export function usePreview(policy: unknown, count = 20) {
  return useQuery({
    queryKey: ["preview", JSON.stringify(policy), count],
    queryFn: () => call("POST /api/v1/policies/preview", { body: { policy: policy as PolicyForm, count } }),
    enabled: policy !== undefined,
    staleTime: 60_000,
    retry: false,
  });
}

export type Outage = Omit<Routes["POST /api/v1/policies/simulate"]["body"], "policy">;

/** What an outage would cost under a policy. The server works on it for seconds; the same answer holds for good. */
export function useOutage(policy: unknown, outage: Outage) {
  return useQuery({
    queryKey: ["outage", JSON.stringify(policy), outage],
    queryFn: () => call("POST /api/v1/policies/simulate", { body: { policy: policy as PolicyForm, ...outage } }),
    enabled: policy !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });
}

export type SeriesWindow = "1h" | "6h" | "24h" | "7d";
const steps: Record<SeriesWindow, string> = { "1h": "1m", "6h": "5m", "24h": "20m", "7d": "2h" };

/** What happened over a time, and what will come due. */
export function useSeries(window: SeriesWindow) {
  const refetchInterval = useAgain(10_000, 10_000);
  return useQuery({
    queryKey: ["series", window],
    queryFn: () => call("GET /api/v1/stats/series", { query: { window, step: steps[window] } }),
    refetchInterval,
  });
}
