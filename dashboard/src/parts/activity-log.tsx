// The activity log: what a person would want to have been told, newest first.
import { Link } from "wouter";
import { useActivity } from "../api/queries";
import type { ActivityView } from "../api/schema";
import { shortId } from "../format";
import { activityText, type Key, kindName, useWords } from "../i18n";
import { ClockTime, Empty, Mark, Panel, Skeleton, Told, Trouble } from "./basics";

/** Whose mark and colour a line has. */
const looks: Record<string, { mark: string; colour: string }> = {
  recovered: { mark: "succeeded", colour: "text-good" },
  dead: { mark: "dead", colour: "text-bad" },
  crashed: { mark: "dead", colour: "text-bad" },
  cancelled: { mark: "cancelled", colour: "text-faint" },
  retried: { mark: "waiting", colour: "text-soft" },
  rescheduled: { mark: "waiting", colour: "text-soft" },
  redriven: { mark: "waiting", colour: "text-soft" },
  edited: { mark: "waiting", colour: "text-soft" },
  destination: { mark: "running", colour: "text-time" },
};
/** Lines that are looked at for the few that are shown: the same told often takes one place. */
const LOOK = 100;
export const WHATS = Object.keys(looks);

/** A line, and how often the same was told, as far as the lines reach. */
export interface Folded extends ActivityView {
  count: number;
  /** When it was told first. */
  first: string;
}

const TIMES = /\d{4}-\d\d-\d\dT[\d:.]+Z/g;

/** The same told again, but for its times, is one line, where it was told last. */
export function folded(lines: readonly ActivityView[]): Folded[] {
  const all = new Map<string, Folded>();
  for (const line of lines) {
    // Which job has shown it does not matter for what is told of a destination.
    const about = line.what === "destination" ? "" : line.job;
    const key = [line.what, about, line.message.replace(TIMES, "")].join("\n");
    const newest = all.get(key);
    if (newest) {
      newest.count += 1;
      newest.first = line.at;
    } else {
      all.set(key, { ...line, count: 1, first: line.at });
    }
  }
  return [...all.values()];
}

/** With `isOwn`, on the page of its job: whose it is need not be said. */
export function ActivityLine({ line, isOwn = false }: { line: ActivityView & Partial<Folded>; isOwn?: boolean }) {
  const { t } = useWords();
  const look = looks[line.what] ?? { mark: "waiting", colour: "text-soft" };
  // A line about a destination is not about a job, even where one has shown what it tells.
  const isDestination = line.what === "destination" || !line.job;
  const to = isDestination ? "/destinations" : `/jobs/${line.job}`;
  const text = <Told text={activityText(t, line)} />;
  return (
    <div data-row={to} tabIndex={-1} className="grid grid-cols-[auto_1fr_auto] gap-x-2.5 px-3.5 py-2 hover:bg-hover">
      <span className={`mt-1 ${look.colour}`}>
        <Mark state={look.mark} />
      </span>
      <div className="min-w-0">
        <p className="flex min-w-0 items-baseline gap-1.5">
          {isDestination ? (
            // The sentence names the destination first.
            <Link to={to} className="link line-clamp-2 text-soft" title={line.message}>
              {text}
            </Link>
          ) : (
            <span className={`shrink-0 ${look.colour}`}>
              {line.what in looks ? t(`what.${line.what}` as Key) : line.what}
            </span>
          )}
          {!isOwn && line.job && line.kind && (
            <Link to={to} className="link cut text-soft">
              {kindName(t, line.kind)} <span className="font-mono text-2xs text-faint">{shortId(line.job)}</span>
            </Link>
          )}
        </p>
        {!isDestination && (
          <p className="line-clamp-2 text-xs break-words text-faint sm:line-clamp-1" title={line.message}>
            {text}
          </p>
        )}
      </div>
      <span className="text-right text-faint">
        <ClockTime at={line.at} />
        {line.first && line.count !== undefined && line.count > 1 && (
          <span className="block text-2xs" data-testid="times">
            <span className="font-mono text-soft">×{line.count}</span> {t("activity.since")}{" "}
            <ClockTime at={line.first} />
          </span>
        )}
      </span>
    </div>
  );
}

export function ActivityPanel({ show }: { show: number }) {
  const { t } = useWords();
  const { data, isLoading, error, refetch } = useActivity(LOOK);
  return (
    <Panel
      title={t("activity.title")}
      className="only:xl:col-span-2"
      tools={
        <Link to="/activity" className="link text-xs text-soft">
          {t("activity.all")}
        </Link>
      }
    >
      {error && !data && <Trouble error={error} again={refetch} />}
      {isLoading && <Skeleton rows={show} />}
      {data?.length === 0 && <Empty>{t("activity.empty")}</Empty>}
      <div className="rows">
        {folded(data ?? [])
          .slice(0, show)
          .map((line) => (
            <ActivityLine key={`${line.what}${line.job}${line.message}`} line={line} />
          ))}
      </div>
    </Panel>
  );
}
