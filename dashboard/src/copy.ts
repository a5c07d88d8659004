// Copying, and what is worth copying.

import { type Exact, writeExact } from "./api/exact";
import type { DetailView } from "./api/schema";
import { base } from "./base";
import { toasts } from "./toasts";

/** Works over plain HTTP too, where browsers have no clipboard to give. */
export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toasts.push({ tone: "info", text: "toast.copied", group: "copied" });
}

/** For a shell: nothing in it is anything but itself. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

interface HttpPayload {
  method?: string;
  url?: string;
  headers?: Record<string, string>;
  body?: Exact;
}

/** An `http` job as the request it makes; any other as the request that puts it in again. */
export function asCurl(job: Pick<DetailView, "kind" | "queue" | "payload">, origin: string): string {
  const payload = job.payload as HttpPayload | undefined;
  if (job.kind === "http" && payload?.url) {
    const parts = ["curl", "-X", payload.method ?? "POST", quoted(payload.url)];
    for (const [name, value] of Object.entries(payload.headers ?? {})) parts.push("-H", quoted(`${name}: ${value}`));
    if (payload.body !== undefined) {
      const isText = typeof payload.body === "string";
      if (!isText) parts.push("-H", quoted("content-type: application/json"));
      parts.push("-d", quoted(isText ? (payload.body as string) : writeExact(payload.body, 0)));
    }
    return parts.join(" ");
  }
  const form = { kind: job.kind, queue: job.queue, payload: (job.payload ?? null) as Exact };
  return `curl ${quoted(`${origin}${base}/api/v1/jobs`)} -H 'content-type: application/json' -d ${quoted(writeExact(form, 0))}`;
}
