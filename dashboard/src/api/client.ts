// One typed function for every call of the API. It also listens to the clock of whoever answers.
import { base } from "../base";
import { serverClock } from "../clock";
import { parseExact } from "./exact";
import type { Routes } from "./schema";

/** What the server said instead of yes. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint?: string,
  ) {
    super(message);
    this.name = "Refused";
  }
}

type Sent<R extends keyof Routes> = {
  path?: Routes[R]["path"];
  query?: Routes[R]["query"];
  body?: Routes[R]["body"];
  /** A body that was written by hand, number by number. */
  text?: string;
  signal?: AbortSignal;
};

/** Asks, and gives what stands in the envelope. */
export async function call<R extends keyof Routes>(route: R, sent: Sent<R> = {}): Promise<Routes[R]["data"]> {
  const { answer } = await ask(route, sent);
  return (JSON.parse(answer) as { data: Routes[R]["data"] }).data;
}

/** The same with every number as the server wrote it. */
export async function callExact<R extends keyof Routes>(route: R, sent: Sent<R> = {}): Promise<Routes[R]["data"]> {
  const { answer } = await ask(route, sent);
  return (parseExact(answer) as unknown as { data: Routes[R]["data"] }).data;
}

export function address(route: string, path: object = {}, query: object = {}): string {
  const [, template = ""] = route.split(" ");
  const filled = template.replace(/\{(\w+)\}/g, (_, name) =>
    encodeURIComponent(String((path as Record<string, unknown>)[name])),
  );
  const wanted = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(wanted.map(([key, value]) => [key, String(value)])).toString();
  return base + filled + (search ? `?${search}` : "");
}

async function ask<R extends keyof Routes>(route: R, sent: Sent<R>): Promise<{ answer: string }> {
  const [method = "GET"] = route.split(" ");
  const body = sent.text ?? (sent.body === undefined ? undefined : JSON.stringify(sent.body));
  const started = Date.now();
  let response: Response;
  try {
    response = await fetch(address(route, sent.path, sent.query), {
      method,
      credentials: "same-origin",
      signal: sent.signal ?? null,
      ...(body === undefined ? {} : { body, headers: { "content-type": "application/json" } }),
    });
  } catch (error) {
    if (sent.signal?.aborted) throw error;
    throw new Refused(0, "UNREACHABLE", "the server does not answer");
  }
  hearTime(response.headers, started, Date.now());
  const answer = await response.text();
  if (!response.ok) throw refusal(response.status, answer);
  return { answer };
}

/** What the server's clock showed between question and answer: to the millisecond, or from a proxy's refusal the second. */
export function hearTime(headers: Headers, sent: number, received: number): void {
  const [exact, date] = [headers.get("redrive-time"), headers.get("date")];
  if (exact !== null) serverClock.hear(sent, received, Number(exact), Number(exact) + 1);
  else if (date !== null) serverClock.hear(sent, received, Date.parse(date), Date.parse(date) + 1000);
}

function refusal(status: number, answer: string): Refused {
  try {
    const { error } = JSON.parse(answer) as { error: { code: string; message: string; hint?: string } };
    return new Refused(status, error.code, error.message, error.hint);
  } catch {
    return new Refused(status, `HTTP ${status}`, `the server answered ${status}`);
  }
}
