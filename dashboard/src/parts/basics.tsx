// Small pieces that every page uses.
import { type ReactNode, useId, useSyncExternalStore } from "react";
import type { JobView } from "../api/schema";
import { onTick, serverClock, TICK_MS } from "../clock";
import { ago, clockTime, countdown, localTimes, visible, wholeTime } from "../format";
import { type Key, useWords } from "../i18n";

export type State = "waiting" | "running" | "succeeded" | "dead" | "cancelled";

/** A state is told by shape and word; colour only for outcomes and for time that runs. */
export function StateTag({ state, quiet = false }: { state: string; quiet?: boolean }) {
  const { t } = useWords();
  const colour =
    {
      waiting: "text-soft",
      running: "text-time",
      retrying: "text-time",
      succeeded: "text-good",
      dead: "text-bad",
      cancelled: "text-faint",
    }[state] ?? "text-soft";
  return (
    <span className={`inline-flex items-center gap-1.5 whitespace-nowrap ${colour}`}>
      <Mark state={state} />
      {!quiet && <span>{t(`state.${state}` as Key)}</span>}
      {quiet && <span className="sr-only">{t(`state.${state}` as Key)}</span>}
    </span>
  );
}

/** An open ring waits, a half one runs, a tick is done, a cross is dead, a dash was taken back. */
export function Mark({ state }: { state: string }) {
  const stroke = { fill: "none", stroke: "currentColor", strokeWidth: 1.6, strokeLinecap: "round" } as const;
  return (
    <svg aria-hidden="true" viewBox="0 0 12 12" className="size-3 shrink-0">
      {state === "waiting" && <circle cx="6" cy="6" r="4" {...stroke} />}
      {state === "running" && (
        <>
          <circle cx="6" cy="6" r="4" {...stroke} />
          <path d="M6 2a4 4 0 0 1 0 8z" fill="currentColor" />
        </>
      )}
      {state === "succeeded" && <path d="M2 6.5 4.7 9 10 3.2" {...stroke} strokeLinejoin="round" />}
      {state === "dead" && <path d="m3 3 6 6M9 3 3 9" {...stroke} />}
      {(state === "cancelled" || state === "forgotten") && <path d="M2.5 6h7" {...stroke} />}
      {(state === "retrying" || state === "retried") && (
        <path d="M9.5 4A4 4 0 1 0 10 6.5M9.8 1.8v2.4H7.4" {...stroke} />
      )}
    </svg>
  );
}

/** Renders only when its text changes, however often the ticker ticks. */
function useTicked(text: () => string): string {
  return useSyncExternalStore(onTick, text);
}

/** What is left until a time of the server's. At zero it says so. */
export function Countdown({ until, zero }: { until: string; zero?: string }) {
  const { t } = useWords();
  const at = Date.parse(until);
  // What is shown stays until the next tick: so it is what will be left then, and never more than a second too much.
  const left = useTicked(() => countdown(at - serverClock.now() - TICK_MS));
  return (
    <time dateTime={until} className={left ? "font-mono tabular-nums" : ""}>
      {left || (zero ?? t("retry.due"))}
    </time>
  );
}

/** When a waiting job is due; of one that its destination does not take, that it is held. */
export function Due({ job }: { job: Pick<JobView, "dueAt" | "reason"> }) {
  const { t } = useWords();
  if (!job.dueAt) return null;
  if (job.reason === "held") return <span className="text-soft">{t("jobs.heldback")}</span>;
  return (
    <span className="text-time">
      <Countdown until={job.dueAt} />
    </span>
  );
}

/** Words that make sense only while a countdown counts. */
export function WhileCounting({ until, children }: { until: string; children: ReactNode }) {
  const at = Date.parse(until);
  const isOn = useTicked(() => (at - TICK_MS > serverClock.now() ? "on" : ""));
  return isOn ? children : null;
}

/** How long ago, kept up to date; the whole time on hover. */
export function Ago({ at }: { at: string }) {
  const { language } = useWords();
  const time = Date.parse(at);
  const text = useTicked(() => ago(Math.min(time, serverClock.now()), serverClock.now(), language));
  return (
    <time dateTime={at} title={wholeTime(time, language)}>
      {text}
    </time>
  );
}

/** A sentence of the server's, as it can be shown. */
export function Told({ text }: { text: string }) {
  const { language } = useWords();
  return visible(localTimes(text, serverClock.now(), language));
}

export function ClockTime({ at }: { at: string }) {
  const { language } = useWords();
  const time = Date.parse(at);
  return (
    <time dateTime={at} title={wholeTime(time, language)} className="font-mono text-2xs">
      {clockTime(time, serverClock.now(), language)}
    </time>
  );
}

/** Retries made and allowed, one pip each while they can be counted. */
export function Pips({ made, allowed }: { made: number; allowed?: number | null | undefined }) {
  const { t } = useWords();
  const label = allowed == null ? t("retry.made", { count: made }) : t("retry.of", { made, allowed });
  return (
    <span className="inline-flex items-center gap-1.5 whitespace-nowrap text-faint">
      {allowed != null && allowed <= 8 && allowed > 0 && (
        <span aria-hidden="true" className="inline-flex gap-[3px] max-sm:hidden">
          {Array.from({ length: allowed }, (_, index) => (
            <span key={index} className={`size-[5px] rounded-full ${index < made ? "bg-soft" : "bg-line-strong"}`} />
          ))}
        </span>
      )}
      <span>{label}</span>
    </span>
  );
}

/** How far a job has come: of one that was given up early, how often it ran, since its retries were not what ended it. */
export function Progressed({
  job,
}: {
  job: Pick<JobView, "why" | "failures" | "attempt" | "retriesAllowed"> & { state: string };
}) {
  const { t } = useWords();
  if (job.state === "dead" && job.why !== "exhausted") {
    return <span className="whitespace-nowrap text-faint">{t("timeline.run", { run: String(job.attempt) })}</span>;
  }
  if (job.failures === 0) return null;
  const { failures, retriesAllowed } = job;
  return <Pips made={Math.min(failures, retriesAllowed ?? failures)} allowed={retriesAllowed} />;
}

export function Panel(props: {
  title: string;
  badge?: string | undefined;
  tools?: ReactNode;
  children: ReactNode;
  className?: string;
}) {
  const id = useId();
  return (
    <section aria-labelledby={id} className={`panel flex flex-col ${props.className ?? ""}`}>
      <header className="flex min-h-10 items-center gap-2 border-b px-3.5">
        <h2 id={id} className="heading">
          {props.title}
        </h2>
        {props.badge !== undefined && (
          <span
            data-testid="badge"
            className="rounded-full border border-line-strong px-1.5 text-2xs leading-4 text-soft"
          >
            {props.badge}
          </span>
        )}
        <div className="ml-auto flex items-center gap-2">{props.tools}</div>
      </header>
      {props.children}
    </section>
  );
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className="px-3.5 py-8 text-center text-faint">{children}</p>;
}

export function Skeleton({ rows = 4 }: { rows?: number }) {
  const { t } = useWords();
  return (
    <div role="status" aria-label={t("loading")} className="rows">
      {Array.from({ length: rows }, (_, index) => (
        <div key={index} className="flex items-center gap-3 px-3.5 py-3">
          <span className="shimmer h-2.5 w-24" />
          <span className="shimmer h-2.5 flex-1" />
          <span className="shimmer h-2.5 w-12" />
        </div>
      ))}
    </div>
  );
}

/** What went wrong, instead of what was asked for. */
export function Trouble({ error, again }: { error: unknown; again?: () => void }) {
  const { t } = useWords();
  const text = error instanceof Error ? error.message : String(error);
  const hint = (error as { hint?: string }).hint;
  return (
    <div role="alert" className="flex flex-wrap items-center gap-x-4 gap-y-2 px-3.5 py-4">
      <p className="text-bad">{t("trouble", { message: text })}</p>
      {hint && <p className="text-faint">{hint}</p>}
      {again && (
        <button type="button" className="button" onClick={again}>
          {t("again")}
        </button>
      )}
    </div>
  );
}

export function PageTitle({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="mb-3 flex min-h-8 flex-wrap items-center gap-3">
      <h1 className="text-base font-semibold tracking-tight">{title}</h1>
      {children}
    </div>
  );
}
