// Short words about what was done or what happened. Own actions are told one by one; what happens to jobs is told
// together: a storm of outcomes is one line that counts.
import { CheckCircle2, Info, OctagonX, X } from "lucide-react";
import { useSyncExternalStore } from "react";
import { Link } from "wouter";
import type { JobEvent } from "./api/board";
import { call } from "./api/client";
import { localTimes } from "./format";
import { jobName, type Key, type Named, type Translate, useWords, type Values } from "./i18n";

export type Tone = "good" | "bad" | "info";
export interface Toast {
  id: number;
  tone: Tone;
  text: Key;
  values?: Values;
  /** The job that it is about, named in the text as `{job}`. */
  job?: Named;
  /** A sentence of the server's, below. */
  detail?: string;
  action?: { label: Key; run: () => void };
  link?: { label: Key; to: string };
  /** Toasts with the same one become one. */
  group?: string;
}

const STAYS_MS = 6_000;
const SHOWN_MAX = 4;

class Toasts {
  #all: readonly Toast[] = [];
  #last = 0;
  readonly #listeners = new Set<() => void>();
  readonly #timers = new Map<number, ReturnType<typeof setTimeout>>();

  readonly subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };
  readonly all = () => this.#all;

  push(toast: Omit<Toast, "id">): void {
    const same = toast.group && this.#all.find((one) => one.group === toast.group);
    const id = same ? same.id : ++this.#last;
    const fresh = { ...toast, id };
    const next = same ? this.#all.map((one) => (one.id === id ? fresh : one)) : [...this.#all, fresh];
    for (const gone of next.slice(0, -SHOWN_MAX)) this.#forget(gone.id);
    this.#set(next.slice(-SHOWN_MAX));
    this.#forget(id);
    this.#timers.set(
      id,
      setTimeout(() => this.drop(id), STAYS_MS),
    );
  }

  /** Says more of what is still there. */
  amend(group: string, of: Named, more: Partial<Toast>): void {
    this.#set(this.#all.map((one) => (one.group === group && one.job === of ? { ...one, ...more } : one)));
  }

  drop(id: number): void {
    this.#forget(id);
    this.#set(this.#all.filter((one) => one.id !== id));
  }

  clear(): void {
    for (const { id } of this.#all) this.#forget(id);
    this.#set([]);
  }

  #forget(id: number): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
  }

  #set(all: readonly Toast[]): void {
    this.#all = all;
    for (const listener of this.#listeners) listener();
  }
}

export const toasts = new Toasts();

/** Outcomes of one moment, counted: jobs that came through after a retry, and jobs that were given up. */
export function outcomes(events: readonly JobEvent[]): { recovered: JobEvent[]; dead: JobEvent[] } {
  const recovered = events.filter((event) => event.event === "succeeded" && (event.failures ?? 0) > 0);
  const dead = events.filter((event) => event.event === "dead");
  return { recovered, dead };
}

/** How long outcomes are counted into the same toast. */
const COUNTED_MS = 5_000;
let counted = { since: 0, recovered: 0, dead: 0 };

export function tellOutcomes(events: readonly JobEvent[], now: number): void {
  const { recovered, dead } = outcomes(events);
  if (recovered.length + dead.length === 0) return;
  if (now - counted.since > COUNTED_MS) counted = { since: now, recovered: 0, dead: 0 };
  tell("recovered", recovered, "good", now);
  tell("dead", dead, "bad", now);
}

function tell(what: "recovered" | "dead", events: readonly JobEvent[], tone: Tone, now: number): void {
  const [first] = events;
  if (!first) return;
  counted[what] += events.length;
  counted.since = now;
  const group = `outcome-${what}`;
  if (counted[what] === 1) {
    const text =
      what === "recovered" ? "toast.recovered" : first.why === "exhausted" ? "toast.exhausted" : "toast.dead";
    const detail = what === "dead" ? first.failure?.message : undefined;
    const link = { label: "toast.open", to: `/jobs/${first.job}` } as const;
    const job: Named = { kind: first.kind };
    toasts.push({ tone, text, group, link, job, ...(detail ? { detail } : {}) });
    // Its event does not say what a person calls it. Of a storm, nobody is asked for: it is only counted.
    call("GET /api/v1/jobs/{id}", { path: { id: first.job } })
      .then((found) => toasts.amend(group, job, { job: found }))
      .catch(() => undefined);
    return;
  }
  const link = { label: "toast.show", to: what === "dead" ? "/dead" : "/activity?what=recovered" } as const;
  toasts.push({ tone, text: `toast.${what}.many`, group, link, values: { count: counted[what] } });
}

/** What is told of many jobs, and of whom no job tells; the last of a group stands. */
const notices: Record<string, Pick<Toast, "tone" | "group">> = {
  failure_rate: { tone: "bad", group: "failure-rate" },
  failure_rate_recovered: { tone: "good", group: "failure-rate" },
  destination_down: { tone: "bad", group: "destinations" },
  needs_auth: { tone: "bad", group: "destinations" },
  destination_recovered: { tone: "good", group: "destinations" },
};

/** Single jobs are told of by their events; this is for what concerns many. */
export function tellNotice(notice: { what: string; message: string }): void {
  const known = notices[notice.what];
  if (!known) return;
  toasts.push({ ...known, text: "toast.notice", values: { message: notice.message } });
}

/** What its text says, with the job by the name that a person knows, and times as a clock shows them. */
function told(t: Translate, language: string, { values, job }: Toast): Values {
  const all: Values = { ...values };
  if (job) all.job = jobName(t, job);
  if (all.message !== undefined) all.message = localTimes(String(all.message), Date.now(), language);
  return all;
}

const icons = { good: CheckCircle2, bad: OctagonX, info: Info };
const colours = { good: "text-good", bad: "text-bad", info: "text-soft" };

export function Toaster() {
  const { t, language } = useWords();
  const all = useSyncExternalStore(toasts.subscribe, toasts.all);
  return (
    <section
      aria-live="polite"
      aria-label={t("toast.region")}
      className="pointer-events-none fixed right-3 bottom-16 left-3 z-40 flex flex-col items-end gap-2 md:bottom-4 md:left-auto"
    >
      {all.map((toast) => {
        const Icon = icons[toast.tone];
        return (
          <div
            key={toast.id}
            data-tone={toast.tone}
            className="pointer-events-auto flex w-full max-w-sm items-start gap-2.5 rounded-lg border border-line-strong bg-raised px-3 py-2.5 shadow-[var(--shadow)]"
          >
            <Icon aria-hidden className={`mt-px size-4 shrink-0 ${colours[toast.tone]}`} />
            <div className="min-w-0 flex-1">
              <p>{t(toast.text, told(t, language, toast))}</p>
              {toast.detail && <p className="cut text-xs text-faint">{toast.detail}</p>}
            </div>
            {toast.action && (
              <button
                type="button"
                className="link shrink-0 font-medium"
                onClick={() => {
                  toast.action?.run();
                  toasts.drop(toast.id);
                }}
              >
                {t(toast.action.label)}
              </button>
            )}
            {toast.link && (
              <Link to={toast.link.to} className="link shrink-0 font-medium" onClick={() => toasts.drop(toast.id)}>
                {t(toast.link.label)}
              </Link>
            )}
            <button
              type="button"
              aria-label={t("toast.dismiss")}
              className="shrink-0 text-faint hover:text-ink"
              onClick={() => toasts.drop(toast.id)}
            >
              <X aria-hidden className="size-4" />
            </button>
          </div>
        );
      })}
    </section>
  );
}
