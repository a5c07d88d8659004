// A server for component tests: it answers the routes a test names, in the envelope, and remembers what it was asked.
import { QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import type { ReactNode } from "react";
import { vi } from "vitest";
import { Router } from "wouter";
import { newClient } from "../api/queries";
import type { JobView, RetryView } from "../api/schema";
import { LanguageProvider } from "../i18n";
import { EVERYTHING, type Session, SessionProvider } from "../session";
import { Toaster } from "../toasts";

export interface Asked {
  method: string;
  path: string;
  query: URLSearchParams;
  body: unknown;
  text: string;
}
type Answer = (asked: Asked) => unknown;

/** What a route refuses with. */
export class Refusal {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly message: string,
    readonly hint?: string,
  ) {}
}

/** Routes by `METHOD /path`; `*` at the end stands for whatever follows. */
export function serve(routes: Record<string, Answer>): Asked[] {
  const log: Asked[] = [];
  vi.stubGlobal("fetch", async (url: string, init: RequestInit = {}) => {
    const { pathname, searchParams } = new URL(url, "http://here");
    const method = init.method ?? "GET";
    const text = String(init.body ?? "");
    const asked = { method, path: pathname, query: searchParams, text, body: text ? JSON.parse(text) : undefined };
    log.push(asked);
    const name = `${method} ${pathname}`;
    const route =
      routes[name] ??
      Object.entries(routes).find(([key]) => key.endsWith("*") && name.startsWith(key.slice(0, -1)))?.[1];
    const said = route ? await route(asked) : new Refusal(404, "RETRY_NOT_FOUND", `there is nothing at ${pathname}`);
    const headers = { date: new Date().toUTCString() };
    if (said instanceof Refusal) {
      const { status, code, message, hint } = said;
      return new Response(JSON.stringify({ success: false, error: { code, message, hint } }), { status, headers });
    }
    const body =
      typeof said === "string" && said.startsWith("{") ? said : JSON.stringify({ success: true, data: said });
    return new Response(body, { status: 200, headers });
  });
  return log;
}

export function show(children: ReactNode, session: Session = EVERYTHING) {
  const client = newClient();
  return render(
    <QueryClientProvider client={client}>
      <LanguageProvider>
        <Router>
          <SessionProvider value={session}>
            {children}
            <Toaster />
          </SessionProvider>
        </Router>
      </LanguageProvider>
    </QueryClientProvider>,
  );
}

export const READER: Session = { name: "reader", scopes: ["read"], isSigned: true };

export function retryItem(fields: Partial<RetryView> = {}): RetryView {
  return {
    id: "01a1e333-4a4a-7000-bb8b-cbbcfc87c940",
    taskId: "parse-456",
    taskType: "parse",
    queued: true,
    attemptCount: 2,
    maxAttempts: 4,
    lastError: "TMDb API timeout",
    nextAttemptAt: new Date(Date.now() + 3_000).toISOString(),
    timeUntilRetry: "3s",
    ...fields,
  };
}

export function jobView(fields: Partial<JobView> = {}): JobView {
  return {
    id: "01a1e333-4a4a-7000-bb8b-cbbcfc87c940",
    kind: "http",
    queue: "default",
    state: "waiting",
    reason: "backoff",
    dueAt: new Date(Date.now() + 60_000).toISOString(),
    payload: { url: "https://api.example/orders" },
    priority: 0,
    policy: {
      name: "media",
      backoff: { kind: "exponential", base: "1s", factor: 2, cap: "8s" },
      jitter: { kind: "ratio", ratio: 0.1 },
    },
    attempt: 2,
    failures: 2,
    retriesAllowed: 4,
    crashes: 0,
    snoozes: 0,
    holds: 0,
    interruptions: 0,
    generation: 0,
    destination: "api.example",
    labels: {},
    origin: "engine",
    createdAt: new Date(Date.now() - 60_000).toISOString(),
    ...fields,
  };
}
