// The first screen: is anything wrong, and when does it fix itself?
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import {
  PENDING_MAX,
  type SeriesWindow,
  useDestinations,
  useGroups,
  usePending,
  useSample,
  useSeries,
  useStats,
} from "../api/queries";
import type { DestinationView, JobView, SeriesView } from "../api/schema";
import { serverClock } from "../clock";
import { count, shortCount, visible } from "../format";
import { useWords } from "../i18n";
import { ActivityPanel } from "../parts/activity-log";
import { Ago, Countdown, Empty, Panel, Skeleton } from "../parts/basics";
import { Sparkline, Throughput } from "../parts/charts";
import { Destinations } from "../parts/destinations";
import { RetryQueuePanel } from "../parts/retry-queue";
import { standing } from "./destinations";

const SHOWN = 8;

export function Overview() {
  const { t } = useWords();
  const [window, setWindow] = useState<SeriesWindow>("1h");
  const series = useSeries(window);
  return (
    <div className="space-y-4">
      <h1 className="sr-only">{t("nav.overview")}</h1>
      <Health {...(series.data ? { series: series.data } : {})} />
      <Numbers {...(series.data ? { series: series.data } : {})} />
      {series.data && (
        <Panel title={t("chart.title")} tools={<Windows value={window} onChange={setWindow} />}>
          <Throughput series={series.data} />
        </Panel>
      )}
      <div className="grid items-start gap-4 xl:grid-cols-[3fr_2fr]">
        <RetryQueuePanel show={SHOWN} />
        <ActivityPanel show={SHOWN} />
      </div>
      <div className="grid items-start gap-4 xl:grid-cols-[3fr_2fr]">
        <TopErrors />
        <Destinations show={6} />
      </div>
    </div>
  );
}

function Windows({ value, onChange }: { value: SeriesWindow; onChange: (window: SeriesWindow) => void }) {
  const { t } = useWords();
  const all: SeriesWindow[] = ["1h", "6h", "24h", "7d"];
  return (
    <fieldset className="flex gap-0.5">
      <legend className="sr-only">{t("chart.window")}</legend>
      {all.map((one) => (
        <button
          key={one}
          type="button"
          aria-pressed={one === value}
          className={`rounded px-1.5 py-0.5 font-mono text-2xs ${one === value ? "bg-line text-ink" : "text-faint hover:text-ink"}`}
          onClick={() => onChange(one)}
        >
          {one}
        </button>
      ))}
    </fieldset>
  );
}

/** One sentence. */
function Health({ series }: { series?: SeriesView }) {
  const { t, language } = useWords();
  const gates = useDestinations();
  const stats = useStats();
  const pending = usePending(PENDING_MAX);
  const dead = useSample("dead");
  if (!stats.data || !pending.data) return <div className="shimmer h-7 w-96 max-w-full" />;
  const retries = pending.data.items.length;
  const next = pending.data.items[0];
  const lately = recentlyDead(dead.data?.items ?? [], serverClock.now());
  const inAnHour =
    series && series.stepMs === 60_000 ? series.points.reduce((sum, point) => sum + point.dead, 0) : lately.length;
  const from = onlyOne(lately);
  const parts: ReactNode[] = [];
  if (retries > 0) {
    const [before = "", after = ""] = t("health.retrying", {
      count: retries,
      retries: `${retries}${pending.data.nextCursor ? "+" : ""}`,
      left: "\u0000",
    }).split("\u0000");
    parts.push(
      <span key="retrying">
        {before}
        <span className="text-time">{next && <Countdown until={next.nextAttemptAt} zero={t("health.due")} />}</span>
        {after}
      </span>,
    );
  }
  if (inAnHour > 0) {
    const text = from
      ? t("health.dead.from", { count: inAnHour, from: visible(from) })
      : t("health.dead", { count: inAnHour });
    parts.push(
      <Link key="dead" to="/dead" className="text-bad underline decoration-1 underline-offset-4">
        {text}
      </Link>,
    );
  } else if (stats.data.dead > 0) {
    parts.push(
      <Link key="kept" to="/dead" className="underline decoration-1 underline-offset-4">
        {t("health.kept", { count: stats.data.dead })}
      </Link>,
    );
  }
  const held = heldBack(gates.data ?? []);
  if (held.down > 0) {
    parts.push(
      <Link key="gates" to="/destinations" className="text-bad underline decoration-1 underline-offset-4">
        {t("health.gates", { count: held.down })}
        {held.jobs > 0 && t("health.gates.held", { count: held.jobs, held: count(held.jobs, language) })}
      </Link>,
    );
  }
  return (
    <p data-testid="health" className="text-pretty text-[1.375rem] leading-8 font-medium tracking-tight">
      {parts.length === 0 && t("health.well")}
      {parts.map((part, index) => (
        <span key={index}>
          {index > 0 && t("health.and")}
          {part}
        </span>
      ))}
      {parts.length > 0 && t("health.end")}
    </p>
  );
}

/** Destinations that take nothing, and the jobs that wait for them. */
function heldBack(gates: readonly DestinationView[]): { down: number; jobs: number } {
  const down = gates.filter((gate) => ["shut", "probing"].includes(standing(gate)));
  return { down: down.length, jobs: down.reduce((sum, gate) => sum + gate.held, 0) };
}

function recentlyDead(jobs: readonly JobView[], now: number): JobView[] {
  return jobs.filter((job) => job.finishedAt && now - Date.parse(job.finishedAt) < 3_600_000);
}

/** The destination that all of them have. */
function onlyOne(jobs: readonly JobView[]): string | undefined {
  const all = new Set(jobs.map((job) => job.destination ?? ""));
  const [first] = all;
  return all.size === 1 && first ? first : undefined;
}

/** Four numbers, each with its last hour, or with its next one. */
function Numbers({ series }: { series?: SeriesView }) {
  const { t, language } = useWords();
  const { data } = useStats();
  const of = (field: "succeeded" | "failed" | "dead") => series?.points.map((point) => point[field]) ?? [];
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const cells = [
    {
      key: "waiting",
      to: "/jobs?state=waiting",
      name: t("number.waiting"),
      value: data?.waiting,
      note: data ? t("number.running", { count: data.running }) : "",
      values: series?.forecast.map((one) => one.due) ?? [],
      colour: "var(--time)",
    },
    {
      key: "succeeded",
      to: "/jobs?state=succeeded",
      name: t("number.succeeded"),
      value: series ? sum(of("succeeded")) : data?.totalSucceeded,
      note: data ? t("number.recovered", { count: data.recovered }) : "",
      values: of("succeeded"),
      colour: "var(--good)",
    },
    {
      key: "failed",
      to: "/retries",
      name: t("number.failed"),
      value: series ? sum(of("failed")) : data?.failures,
      note: data ? t("number.retries", { count: data.retries }) : "",
      values: of("failed"),
      colour: "var(--faint)",
    },
    {
      key: "dead",
      to: "/dead",
      name: t("number.dead"),
      value: data?.dead,
      note: data ? t("number.givenup", { count: data.totalFailed }) : "",
      values: of("dead"),
      colour: "var(--bad)",
    },
  ];
  return (
    <div className="panel grid grid-cols-2 divide-line overflow-hidden md:grid-cols-4 md:divide-x">
      {cells.map((cell, index) => (
        <Link
          key={cell.key}
          to={cell.to}
          className={`block px-3.5 pt-2.5 pb-2 hover:bg-hover ${index % 2 ? "max-md:border-l" : ""} ${index > 1 ? "max-md:border-t" : ""}`}
        >
          <p className="label">{cell.name}</p>
          <p className="items-baseline gap-2 sm:flex">
            <span data-testid={`number-${cell.key}`} className="text-2xl leading-8 font-medium tracking-tight">
              {cell.value === undefined
                ? "–"
                : cell.value > 999_999
                  ? shortCount(cell.value)
                  : count(cell.value, language)}
            </span>
            <span className="cut text-2xs text-faint max-sm:mb-1 max-sm:block">{cell.note}</span>
          </p>
          {cell.values.length > 0 && <Sparkline values={cell.values} colour={cell.colour} />}
        </Link>
      ))}
    </div>
  );
}

function TopErrors() {
  const { t, language } = useWords();
  const { data, isLoading } = useGroups(6);
  return (
    <Panel
      title={t("errors.top")}
      tools={
        <Link to="/errors" className="link text-xs text-soft">
          {t("errors.all")}
        </Link>
      }
    >
      {isLoading && <Skeleton rows={3} />}
      {data?.length === 0 && <Empty>{t("errors.empty")}</Empty>}
      <div className="rows">
        {data?.map((group) => (
          <div
            key={`${group.group}${group.kind}`}
            data-row={`/errors?group=${group.group ?? ""}`}
            tabIndex={-1}
            className="grid grid-cols-[3.5rem_1fr_auto] items-baseline gap-3 px-3.5 py-2 hover:bg-hover"
          >
            <span className="text-right font-mono">{count(group.count, language)}</span>
            <Link
              to={`/errors?group=${encodeURIComponent(group.group ?? "")}`}
              className="link cut"
              title={group.message ?? undefined}
            >
              {visible(group.message ?? t("errors.nameless"))}
            </Link>
            <span className="text-2xs text-faint">
              <Ago at={group.lastAt} />
            </span>
          </div>
        ))}
      </div>
    </Panel>
  );
}
