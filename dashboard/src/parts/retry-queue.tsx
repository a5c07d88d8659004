// What waits to be tried again, the next one first, with everything a person needs to leave it alone or to step in.
import { CircleHelp, CirclePause, Clock, RefreshCw } from "lucide-react";
import { type ReactNode, useMemo } from "react";
import { Link } from "wouter";
import { useCancel, useRetryNow } from "../api/actions";
import { type Board, ordered, type Row, standing } from "../api/board";
import { PENDING_MAX, useExplain, useJob, usePreview, useRetryBoard } from "../api/queries";
import type { HeldBack, RetryView } from "../api/schema";
import { duration, visible } from "../format";
import { type Key, kindName, type Translate, useWords } from "../i18n";
import { useMay } from "../session";
import { Countdown, Panel, Pips, Skeleton, StateTag, Told, Trouble, WhileCounting } from "./basics";
import { Popover } from "./dialog";
import { useHold } from "./hold";

interface RetryQueueProps {
  /** Called after a person has stepped in. */
  onRefresh?: () => void;
  /** Rows that are shown; all of the page if not given. */
  show?: number;
  /** What stands in its place while nothing waits: then there is no panel. */
  empty?: ReactNode;
}

export function RetryQueuePanel({ onRefresh, show, empty }: RetryQueueProps) {
  const { t } = useWords();
  const { board, isLoading, error, refetch, hasMore } = useRetryBoard(PENDING_MAX);
  const hold = useHold<Board>();
  const { rows, outside } = useMemo(() => ordered(board, hold.held), [board, hold.held]);
  const waiting = [...board.values()].filter((row) => row.phase === "waiting" || row.phase === "running").length;
  const shown = show ? rows.slice(0, show) : rows;
  if (!isLoading && !error && rows.length === 0) return empty;
  const badge = isLoading ? undefined : `${waiting}${hasMore ? "+" : ""}`;
  return (
    <Panel
      title={t("retry.title")}
      badge={badge}
      tools={
        <>
          {outside > 0 && <span className="label">{t("retry.held", { count: outside })}</span>}
          {show && rows.length > shown.length && (
            <Link to="/retries" className="link text-xs text-soft">
              {t("retry.all", { count: waiting })}
            </Link>
          )}
        </>
      }
    >
      {error && board.size === 0 && <Trouble error={error} again={refetch} />}
      {isLoading && <Skeleton rows={show ?? 8} />}
      <div className="rows @container" {...hold.over(() => standing(rows))}>
        {shown.map((row) => (
          <RetryRow key={row.item.id} row={row} {...(onRefresh ? { onRefresh } : {})} />
        ))}
      </div>
    </Panel>
  );
}

/** On a phone three lines, in a panel two, on a page of its own one: name, retries, error, time, and what can be done. */
const columns =
  "grid grid-cols-[0.875rem_auto_minmax(0,1fr)_auto] items-center gap-x-2.5 gap-y-0.5 px-3.5 py-2 " +
  "sm:grid-cols-[0.875rem_minmax(0,1fr)_9.5rem_8.5rem_auto] " +
  "@4xl:grid-cols-[0.875rem_minmax(9rem,15rem)_9.5rem_minmax(0,1fr)_9.5rem_auto] @4xl:py-1";

function RetryRow({ row, onRefresh }: { row: Row; onRefresh?: () => void }) {
  const { t } = useWords();
  const { item, phase } = row;
  const isLeaving = phase !== "waiting" && phase !== "running";
  return (
    <div
      data-row={`/jobs/${item.id}`}
      data-phase={phase}
      tabIndex={-1}
      className={`${columns} hover:bg-hover ${isLeaving ? "leaving" : ""}`}
    >
      <RefreshCw aria-hidden className="size-3.5 text-faint" />
      <Link to={`/jobs/${item.id}`} className="link flex min-w-0 gap-1.5 max-sm:col-span-2" title={item.taskId}>
        <span className="cut max-w-40 shrink-0 font-medium">{typeLabel(t, item)}</span>
        <span className="cut text-soft">
          {visible(item.taskId === item.id ? (item.destination ?? "") : item.taskId)}
        </span>
      </Link>
      <span className="max-sm:col-start-2 max-sm:row-start-2 max-sm:text-xs">
        <Pips made={item.attemptCount} allowed={item.maxAttempts} />
      </span>
      <p
        className="cut text-xs text-faint max-sm:col-span-2 max-sm:col-start-3 max-sm:row-start-2 sm:col-start-2 sm:col-end-[-1] sm:row-start-2 @4xl:col-start-4 @4xl:col-end-5 @4xl:row-start-1"
        title={item.lastError ?? undefined}
      >
        {phase === "waiting" && item.held && <span className="mr-1.5 text-soft">{heldBy(t, item.held)}</span>}
        {item.lastError ? t("retry.last", { error: visible(item.lastError) }) : " "}
      </p>
      <div className="flex items-center justify-end gap-1.5 text-right max-sm:col-start-4 max-sm:row-start-1 sm:col-start-4 sm:row-start-1 @4xl:col-start-5">
        <When row={row} />
      </div>
      <Actions row={row} {...(onRefresh ? { onRefresh } : {})} />
    </div>
  );
}

/** What sort of work it is. Of what failed outside and was queued for its retries, what is not parsing is fetching. */
function typeLabel(t: Translate, { taskType, queued }: RetryView): string {
  return queued && taskType !== "parse" ? t("kind.metadata_fetch") : kindName(t, taskType);
}

/** What keeps a job back although it is due, in a sentence. */
function heldBy(t: Translate, { by, name, state, reason }: HeldBack): string {
  const key = by === "destination" ? (state === "shut" ? (reason ?? "failing") : state) : by;
  return t(`heldby.${key}` as Key, { name: visible(name) });
}

/** The time that runs, in its own colour; then what became of it. */
function When({ row }: { row: Row }) {
  const { t } = useWords();
  if (row.phase !== "waiting") return <StateTag state={row.phase} />;
  if (row.item.held) return <HeldUntil held={row.item.held} />;
  const [before = "", after = ""] = t("retry.in", { left: "\u0000" }).split("\u0000");
  return (
    <span className="inline-flex items-center gap-1 whitespace-nowrap text-time">
      <Clock aria-hidden className="size-3" />
      <span>
        <WhileCounting until={row.item.nextAttemptAt}>{before}</WhileCounting>
        <Countdown until={row.item.nextAttemptAt} />
        <WhileCounting until={row.item.nextAttemptAt}>{after}</WhileCounting>
      </span>
      <Popover label={t("why.title")} button={<CircleHelp aria-hidden className="size-3.5" />}>
        {() => <Why id={row.item.id} />}
      </Popover>
    </span>
  );
}

/** Of what is kept back, that it is, and the time that is known: when its destination takes jobs again, or is asked. */
function HeldUntil({ held: { until, probeAt } }: { held: HeldBack }) {
  const { t } = useWords();
  const at = until ?? probeAt;
  const [before = "", after = ""] = t(until ? "held.goes" : "held.asked", { left: "\u0000" }).split("\u0000");
  return (
    <span className="inline-flex items-center gap-1 whitespace-nowrap text-soft">
      <CirclePause aria-hidden className="size-3" />
      <span>
        {t("jobs.heldback")}
        {at && (
          <WhileCounting until={at}>
            {before}
            <span className="text-time">
              <Countdown until={at} />
            </span>
            {after}
          </WhileCounting>
        )}
      </span>
    </span>
  );
}

function Actions({ row, onRefresh }: { row: Row; onRefresh?: () => void }) {
  const { t } = useWords();
  const may = useMay("operate");
  const trigger = useRetryNow();
  const cancel = useCancel();
  if (!may) return null;
  const { id, nextAttemptAt } = row.item;
  const isOver = row.phase !== "waiting" && row.phase !== "running";
  return (
    <div className="flex gap-1.5 max-sm:col-span-3 max-sm:col-start-2 max-sm:mt-1 sm:col-start-5 sm:row-start-1 @4xl:col-start-6">
      <button
        type="button"
        data-key="r"
        className="button"
        disabled={trigger.isPending || row.phase !== "waiting"}
        onClick={() => trigger.mutate({ id }, { onSuccess: () => onRefresh?.() })}
      >
        {t("retry.now")}
      </button>
      <button
        type="button"
        data-key="c"
        className="button button-quiet"
        disabled={cancel.isPending || isOver}
        onClick={() => cancel.mutate({ id, dueAt: nextAttemptAt }, { onSuccess: () => onRefresh?.() })}
      >
        {t("retry.cancel")}
      </button>
    </div>
  );
}

/** Why this delay: what the policy says, what chance or the other side made of it. */
export function Why({ id }: { id: string }) {
  const { t } = useWords();
  const job = useJob(id);
  const explained = useExplain(id);
  const preview = usePreview(job.data?.policy, 64);
  if (job.error) return <p className="text-bad">{job.error.message}</p>;
  if (!job.data) return <p className="text-faint">{t("loading")}</p>;
  const last = job.data.attempts.at(-1);
  const drawn = last?.nextAt ? Date.parse(last.nextAt) - Date.parse(last.endedAt) : undefined;
  const planned = preview.data?.delays[Math.max(0, job.data.failures - 1)]?.delayMs;
  const policy = job.data.policy as PolicyForm;
  const isAsked =
    last?.failure?.class === "rate_limited" && planned !== undefined && drawn !== undefined && drawn > planned * 1.5;
  return (
    <div className="space-y-2">
      <p>{explained.data && <Told text={explained.data.summary} />}</p>
      <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1">
        <Fact name={t("why.policy")}>{policy.name ?? t("why.own")}</Fact>
        <Fact name={t("why.backoff")}>{backoffText(policy)}</Fact>
        {planned !== undefined && <Fact name={t("why.planned")}>{duration(planned)}</Fact>}
        {drawn !== undefined && <Fact name={t("why.drawn")}>{duration(drawn)}</Fact>}
        {planned !== undefined && drawn !== undefined && !isAsked && (
          <Fact name={t("why.jitter")}>{`${drawn >= planned ? "+" : "−"}${duration(Math.abs(drawn - planned))}`}</Fact>
        )}
        {isAsked && <Fact name={t("why.asked")}>{duration(drawn)}</Fact>}
        {last?.rule && <Fact name={t("why.rule")}>{last.rule}</Fact>}
      </dl>
    </div>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <>
      <dt className="text-faint">{name}</dt>
      <dd className="min-w-0 break-words font-mono text-2xs">{children}</dd>
    </>
  );
}

export interface PolicyForm {
  name?: string;
  backoff?: { kind: string; base?: string; factor?: number; cap?: string; delay?: string; delays?: string[] };
  jitter?: { kind: string; ratio?: number; max?: string };
  maxRetries?: number;
  maxAttempts?: number;
}

/** `exponential 1s ×2 ≤ 8s ±10 %`. */
export function backoffText(policy: PolicyForm): string {
  const { backoff, jitter } = policy;
  const parts = [backoff?.kind ?? ""];
  if (backoff?.base ?? backoff?.delay) parts.push(String(backoff?.base ?? backoff?.delay));
  if (backoff?.factor) parts.push(`×${backoff.factor}`);
  if (backoff?.cap) parts.push(`≤ ${backoff.cap}`);
  if (backoff?.delays) parts.push(backoff.delays.join(", "));
  if (jitter?.kind === "ratio") parts.push(`±${Math.round((jitter.ratio ?? 0) * 100)} %`);
  else if (jitter?.kind === "additive") parts.push(`+0–${jitter.max}`);
  else if (jitter && jitter.kind !== "none") parts.push(jitter.kind);
  return parts.filter(Boolean).join(" ");
}
