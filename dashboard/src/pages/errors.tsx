// What jobs die of, grouped by what the failures have in common; a whole group can be brought back or thrown away.
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { call } from "../api/client";
import { useGroups } from "../api/queries";
import type { GroupView } from "../api/schema";
import { serverClock } from "../clock";
import { useParam } from "../filters";
import { count, duration, visible } from "../format";
import { kindName, useWords } from "../i18n";
import { Ago, Empty, PageTitle, Skeleton, StateTag, Trouble } from "../parts/basics";
import { BulkDialog, type BulkPlan } from "../parts/bulk";
import { Sparkline } from "../parts/charts";
import { useMay } from "../session";

/** Deaths of a group that its trend is drawn from. */
const TREND = 200;
const BUCKETS = 24;

export function Errors() {
  const { t } = useWords();
  const { data, isLoading, error, refetch } = useGroups();
  const [chosen, choose] = useParam("group");
  const [plan, setPlan] = useState<BulkPlan>();
  const from = Math.min(...(data ?? []).map((group) => Date.parse(group.firstAt)));
  return (
    <div>
      <PageTitle title={t("nav.errors")} />
      <div className="panel">
        <div className="label grid grid-cols-[3.5rem_1fr_auto] gap-3 border-b px-3.5 py-2 md:grid-cols-[3.5rem_1fr_10rem_6rem_6rem]">
          <span className="text-right">{t("errors.jobs")}</span>
          <span>{t("errors.message")}</span>
          <span className="max-md:hidden">{t("errors.span")}</span>
          <span className="max-md:hidden">{t("errors.first")}</span>
          <span className="text-right">{t("errors.last")}</span>
        </div>
        {error && !data && <Trouble error={error} again={refetch} />}
        {isLoading && <Skeleton rows={6} />}
        {data?.length === 0 && <Empty>{t("errors.empty")}</Empty>}
        <div className="rows">
          {data?.map((group) => {
            const isOpen = chosen !== "" && chosen === group.group;
            return (
              <div key={`${group.group}${group.kind}`}>
                <GroupRow
                  group={group}
                  from={from}
                  isOpen={isOpen}
                  toggle={() => choose(isOpen ? "" : (group.group ?? ""))}
                />
                {isOpen && <GroupDetail group={group} plan={setPlan} />}
              </div>
            );
          })}
        </div>
      </div>
      {plan && <BulkDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </div>
  );
}

function GroupRow(props: { group: GroupView; from: number; isOpen: boolean; toggle: () => void }) {
  const { t, language } = useWords();
  const { group } = props;
  return (
    <div
      data-row=""
      tabIndex={-1}
      className={`grid grid-cols-[3.5rem_1fr_auto] items-center gap-3 px-3.5 py-2 hover:bg-hover md:grid-cols-[3.5rem_1fr_10rem_6rem_6rem] ${props.isOpen ? "bg-hover" : ""}`}
    >
      <span className="text-right font-mono font-medium">{count(group.count, language)}</span>
      <button
        type="button"
        data-key="Enter"
        aria-expanded={props.isOpen}
        className="min-w-0 text-left"
        onClick={props.toggle}
      >
        <span className="cut block font-medium">{visible(group.message ?? t("errors.nameless"))}</span>
        <span className="block text-2xs text-faint">
          {kindName(t, group.kind)} · <span className="font-mono">{group.group}</span>
        </span>
      </button>
      <span className="max-md:hidden">
        <Lifeline group={group} from={props.from} />
      </span>
      <span className="text-2xs text-faint max-md:hidden">
        <Ago at={group.firstAt} />
      </span>
      <span className="text-right text-2xs text-soft">
        <Ago at={group.lastAt} />
      </span>
    </div>
  );
}

/** From its first to its last death, on the same scale for all groups; the right end is now. */
function Lifeline({ group, from }: { group: GroupView; from: number }) {
  const { t } = useWords();
  const now = serverClock.now();
  const x = (at: string) => ((Date.parse(at) - from) / Math.max(1, now - from)) * 100;
  const [first, last] = [x(group.firstAt), x(group.lastAt)];
  const label = t("errors.lifeline", { span: duration(Date.parse(group.lastAt) - Date.parse(group.firstAt)) });
  return (
    <svg role="img" aria-label={label} viewBox="0 0 100 10" preserveAspectRatio="none" className="h-2.5 w-full">
      <path d="M0 5H100" stroke="var(--line)" strokeWidth="1" vectorEffect="non-scaling-stroke" />
      <rect x={Math.min(first, 98.5)} y="2" width={Math.max(1.5, last - first)} height="6" fill="var(--bad)" />
    </svg>
  );
}

function GroupDetail({ group, plan }: { group: GroupView; plan: (plan: BulkPlan) => void }) {
  const { t } = useWords();
  const may = useMay("operate");
  const filter = { group: group.group ?? "", state: "dead" };
  const { data } = useQuery({
    queryKey: ["group", group.group, group.count],
    queryFn: () => call("GET /api/v1/dead", { query: { group: group.group ?? "", limit: TREND } }),
  });
  const deaths = useMemo(() => (data?.items ?? []).map((job) => Date.parse(job.finishedAt ?? job.createdAt)), [data]);
  const trend = useMemo(() => histogram(deaths, BUCKETS, serverClock.now()), [deaths]);
  return (
    <div className="grid gap-4 border-t border-dashed bg-paper px-3.5 py-3 md:grid-cols-[1fr_16rem]">
      <div className="min-w-0 space-y-3">
        <p className="font-mono text-xs break-words whitespace-pre-wrap text-soft">{visible(group.message ?? "")}</p>
        <ul className="space-y-1">
          {data?.items.slice(0, 5).map((job) => (
            <li key={job.id} className="flex gap-3 text-xs">
              <StateTag state={job.state} quiet />
              <Link to={`/jobs/${job.id}`} className="link cut font-mono text-2xs">
                {job.id}
              </Link>
              <span className="cut text-faint">{visible(job.destination ?? job.queue)}</span>
              <span className="ml-auto text-2xs whitespace-nowrap text-faint">
                {job.finishedAt && <Ago at={job.finishedAt} />}
              </span>
            </li>
          ))}
        </ul>
        <div className="flex flex-wrap gap-1.5">
          {may && (
            <button
              type="button"
              data-key="r"
              className="button button-strong"
              onClick={() => plan({ command: "redrive", filter })}
            >
              {t("errors.redrive")}
            </button>
          )}
          {may && (
            <button type="button" className="button button-danger" onClick={() => plan({ command: "delete", filter })}>
              {t("errors.delete")}
            </button>
          )}
          <Link to={`/dead?group=${encodeURIComponent(group.group ?? "")}`} className="button">
            {t("errors.list")}
          </Link>
        </div>
      </div>
      <div>
        <p className="label mb-1">{t("errors.trend", { count: deaths.length })}</p>
        <Sparkline values={trend} colour="var(--bad)" />
      </div>
    </div>
  );
}

/** How many fall into each of equal parts of the time from the first one to now. */
export function histogram(times: readonly number[], buckets: number, now: number): number[] {
  const parts = new Array<number>(buckets).fill(0);
  const from = Math.min(...times, now - 1);
  for (const at of times) {
    const index = Math.min(buckets - 1, Math.floor(((at - from) / (now - from)) * buckets));
    parts[index] = (parts[index] ?? 0) + 1;
  }
  return parts;
}
