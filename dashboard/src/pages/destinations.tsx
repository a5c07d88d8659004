// The other side: how the destinations stand, what holds their jobs and until when, what is said of them, and what they
// may be asked to bear.
import { ArrowDown, ArrowUp, Pause, Play, Plus } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { useSayOfDestination, useUnlimit } from "../api/actions";
import { useDestinations, useLimits } from "../api/queries";
import type { DestinationView, LimitsView, RuleView } from "../api/schema";
import { count, duration, visible } from "../format";
import { type Key, useWords } from "../i18n";
import { Ago, Countdown, Empty, Mark, PageTitle, Panel, Skeleton, Trouble, WhileCounting } from "../parts/basics";
import { Destinations as Troubled } from "../parts/destinations";
import { EditLimits } from "../parts/edit-limits";
import { useMay } from "../session";

const columns =
  "grid grid-cols-[1fr_auto] items-center gap-x-4 gap-y-1 px-3.5 py-2.5 lg:grid-cols-[minmax(8rem,1.1fr)_8rem_minmax(11rem,1.9fr)_3rem_minmax(6rem,0.8fr)_20rem]";

export function Destinations() {
  const { t } = useWords();
  const { data, isLoading, error, refetch } = useDestinations();
  return (
    <div className="space-y-4">
      <PageTitle title={t("nav.destinations")} />
      <div className="panel">
        <div className={`${columns} label border-b max-lg:hidden`}>
          <span>{t("gates.name")}</span>
          <span>{t("gates.state")}</span>
          <span>{t("gates.why")}</span>
          <span className="text-right">{t("gates.held")}</span>
          <span>{t("gates.bears")}</span>
          <span />
        </div>
        {error && !data && <Trouble error={error} again={refetch} />}
        {isLoading && <Skeleton rows={3} />}
        {data?.length === 0 && <Empty>{t("gates.none")}</Empty>}
        <div className="rows">
          {data?.map((destination) => (
            <DestinationRow key={destination.name} destination={destination} />
          ))}
        </div>
      </div>
      <Limits />
      <Troubled />
    </div>
  );
}

const looks: Record<string, { mark: string; colour: string }> = {
  open: { mark: "succeeded", colour: "text-good" },
  ramp: { mark: "running", colour: "text-time" },
  probing: { mark: "running", colour: "text-time" },
  shut: { mark: "dead", colour: "text-bad" },
  resting: { mark: "waiting", colour: "text-time" },
  paused: { mark: "cancelled", colour: "text-soft" },
};

/** One that asked for a pause is well: it says when it takes more. */
export function standing({ state, reason }: Pick<DestinationView, "state" | "reason">): string {
  return state === "shut" && reason === "retry_after" ? "resting" : state;
}

function DestinationRow({ destination }: { destination: DestinationView }) {
  const { t, language } = useWords();
  const { name, since, held } = destination;
  const state = standing(destination);
  const link = `/jobs?destination=${encodeURIComponent(name)}`;
  const look = looks[state] ?? { mark: "waiting", colour: "text-soft" };
  return (
    <div data-row={link} tabIndex={-1} data-testid={`destination-${name}`} className={`${columns} hover:bg-hover`}>
      <Link to={link} className="link cut font-medium">
        {visible(name)}
      </Link>
      <span className={`inline-flex items-center gap-1.5 whitespace-nowrap ${look.colour}`}>
        <Mark state={look.mark} />
        {t(`gate.${state}` as Key)}
      </span>
      <span className="min-w-0 text-xs text-soft max-lg:col-span-2">
        <Why destination={destination} />
        {since && (
          <span className="block text-2xs text-faint">
            <Ago at={since} />
          </span>
        )}
      </span>
      <Link to={`${link}&state=waiting`} className="link font-mono text-xs lg:text-right">
        <span className="text-faint lg:hidden">{t("gates.held")} </span>
        {count(held, language)}
      </Link>
      <span className="text-2xs text-soft max-lg:col-span-2">
        <Bears destination={destination} />
      </span>
      <Say destination={destination} />
    </div>
  );
}

/** Why it takes nothing now, and what comes next. */
function Why({ destination }: { destination: DestinationView }) {
  const { t } = useWords();
  const { state, reason, until, probeAt, levelPerSecond } = destination;
  if (state === "paused") return t("gate.why.paused");
  if (state === "probing") return t("gate.why.probing");
  if (state === "ramp") return levelPerSecond == null ? null : t("gate.why.ramp", { level: levelPerSecond });
  if (state !== "shut") return null;
  const next = until ?? probeAt;
  const [before = "", after = ""] = t(until ? "gate.goes" : "gate.asks", { left: "\u0000" }).split("\u0000");
  return (
    <>
      {t(`gate.why.${reason ?? "failing"}` as Key)}
      {next && (
        <span className="whitespace-nowrap">
          {t("gate.then")}
          <WhileCounting until={next}>{before}</WhileCounting>
          <span className="text-time">
            <Countdown until={next} zero={until ? t("gate.goes.now") : t("gate.asks.now")} />
          </span>
          <WhileCounting until={next}>{after}</WhileCounting>
        </span>
      )}
    </>
  );
}

/** What is limited, and what was learned. */
function Bears({ destination }: { destination: DestinationView }) {
  const { t } = useWords();
  const { learned, limits } = destination;
  const parts = limitWords(limits, t);
  if (learned.bearsPerSecond != null) parts.push(t("gates.learned", { rate: learned.bearsPerSecond }));
  if (learned.tookMs != null) parts.push(t("gates.took", { time: duration(learned.tookMs) }));
  return parts.join(" · ");
}

type Translate = ReturnType<typeof useWords>["t"];

/** What differs from the usual, in words. */
export function limitWords(limits: LimitsView, t: Translate): string[] {
  const words: string[] = [];
  if (limits.rate) words.push(limits.rate);
  if (limits.burst != null) words.push(t("limits.burst.is", { count: limits.burst }));
  if (limits.minGap) words.push(t("limits.gap.is", { gap: limits.minGap }));
  if (limits.concurrency != null) words.push(t("limits.concurrency.is", { count: limits.concurrency }));
  if (limits.breaker !== 10) words.push(t("limits.breaker.is", { count: limits.breaker }));
  if (limits.retryBudget !== 20) words.push(t("limits.budget.is", { count: limits.retryBudget }));
  if (limits.retryAfterMax !== "1d") words.push(t("limits.after.is", { max: limits.retryAfterMax }));
  return words;
}

function Say({ destination }: { destination: DestinationView }) {
  const { t } = useWords();
  const may = useMay("operate");
  const say = useSayOfDestination();
  const [isEditing, setEditing] = useState(false);
  const { name, state } = destination;
  if (!may) return <span />;
  const isPaused = state === "paused";
  const isDown = state === "shut" || state === "probing";
  const tell = (word: "pause" | "resume" | "up" | "down") => say.mutate({ name, word });
  return (
    <span className="flex flex-wrap gap-1.5 max-lg:col-span-2 lg:grid lg:grid-cols-[5.5rem_minmax(8.25rem,auto)_auto] lg:justify-end">
      <button
        type="button"
        data-key="p"
        className="button"
        disabled={say.isPending}
        onClick={() => tell(isPaused ? "resume" : "pause")}
      >
        {isPaused ? <Play aria-hidden className="size-3" /> : <Pause aria-hidden className="size-3" />}
        {isPaused ? t("queues.resume") : t("queues.pause")}
      </button>
      <button
        type="button"
        className="button"
        title={isDown ? t("gates.up.means") : t("gates.down.means")}
        disabled={say.isPending}
        onClick={() => tell(isDown ? "up" : "down")}
      >
        {isDown ? <ArrowUp aria-hidden className="size-3" /> : <ArrowDown aria-hidden className="size-3" />}
        {isDown ? t("gates.up") : t("gates.down")}
      </button>
      <button type="button" data-key="e" className="button button-quiet" onClick={() => setEditing(true)}>
        {t("limits.edit")}
      </button>
      {isEditing && <EditLimits pattern={name} limits={destination.limits} onClose={() => setEditing(false)} />}
    </span>
  );
}

/** Limits by pattern: those of the configuration, and those that were set over them. */
function Limits() {
  const { t } = useWords();
  const may = useMay("operate");
  const { data } = useLimits();
  const [edited, setEdited] = useState<RuleView | "new">();
  const unlimit = useUnlimit();
  return (
    <Panel
      title={t("limits.title")}
      tools={
        may && (
          <button type="button" className="button button-quiet" onClick={() => setEdited("new")}>
            <Plus aria-hidden className="size-3" />
            {t("limits.add")}
          </button>
        )
      }
    >
      {data?.length === 0 && <Empty>{t("limits.none")}</Empty>}
      <div className="rows">
        {data?.map((rule) => (
          <div
            key={rule.pattern}
            className="grid grid-cols-[1fr_auto] items-center gap-x-4 gap-y-1 px-3.5 py-2 md:grid-cols-[12rem_1fr_auto]"
          >
            <span className="cut font-mono text-xs">{visible(rule.pattern)}</span>
            <span className="text-xs text-soft max-md:col-span-2 max-md:row-start-2">
              {limitWords(rule.limits, t).join(" · ") || t("limits.usual")}
              <span className="ml-2 text-2xs text-faint">
                {t(rule.from === "set" ? "limits.set" : "limits.config")}
              </span>
            </span>
            <span className="flex gap-1.5">
              {may && (
                <button type="button" className="button button-quiet" onClick={() => setEdited(rule)}>
                  {t("limits.edit")}
                </button>
              )}
              {may && rule.from === "set" && (
                <button
                  type="button"
                  className="button button-quiet"
                  disabled={unlimit.isPending}
                  onClick={() => unlimit.mutate({ pattern: rule.pattern })}
                >
                  {t("limits.remove")}
                </button>
              )}
            </span>
          </div>
        ))}
      </div>
      {edited === "new" && <EditLimits onClose={() => setEdited(undefined)} />}
      {edited && edited !== "new" && (
        <EditLimits pattern={edited.pattern} limits={edited.limits} onClose={() => setEdited(undefined)} />
      )}
    </Panel>
  );
}
