// What jobs die of, grouped by what the failures have in common; a whole group can be brought back or thrown away.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { call } from "../api/client";
import { useGroups } from "../api/queries";
import type { GroupView } from "../api/schema";
import { serverClock } from "../clock";
import { useParam } from "../filters";
import { count, duration, shortId, visible } from "../format";
import { jobName, kindName, useWords } from "../i18n";
import { Ago, Empty, PageTitle, Skeleton, StateTag, Trouble } from "../parts/basics";
import { BulkDialog, type BulkPlan } from "../parts/bulk";
import { Sparkline } from "../parts/charts";
import { useMay } from "../session";

/** Jobs of a group that are named. */
const NAMED = 5;

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
        <div className="label grid grid-cols-[2.5rem_1fr_auto] gap-3 border-b px-3.5 py-2 md:grid-cols-[3.5rem_1fr_10rem_6rem_6rem]">
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
      className={`grid grid-cols-[2.5rem_1fr_auto] items-center gap-3 px-3.5 py-2 hover:bg-hover md:grid-cols-[3.5rem_1fr_10rem_6rem_6rem] ${props.isOpen ? "bg-hover" : ""}`}
    >
      <span className="text-right font-mono font-medium">{count(group.count, language)}</span>
      <button
        type="button"
        data-key="Enter"
        aria-expanded={props.isOpen}
        className="min-w-0 text-left"
        onClick={props.toggle}
      >
        <span className="block font-medium max-md:line-clamp-2 max-md:break-words md:truncate">
          {visible(group.message ?? t("errors.nameless"))}
        </span>
        <span className="block text-2xs text-faint">{kindName(t, group.kind)}</span>
      </button>
      <span className="max-md:col-span-3 max-md:row-start-2 max-md:pl-[3.25rem]">
        <Trend group={group} from={props.from} />
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

/** Its deaths over time, on the same scale for all groups; the right end is now. */
function Trend({ group, from }: { group: GroupView; from: number }) {
  const { t } = useWords();
  const span = duration(serverClock.now() - from);
  return <Sparkline values={group.trend} colour="var(--bad)" label={t("errors.over", { count: group.count, span })} />;
}

function GroupDetail({ group, plan }: { group: GroupView; plan: (plan: BulkPlan) => void }) {
  const { t } = useWords();
  const may = useMay("operate");
  const filter = { group: group.group ?? "", state: "dead" };
  const { data } = useQuery({
    queryKey: ["group", group.group, group.count],
    queryFn: () => call("GET /api/v1/dead", { query: { group: group.group ?? "", limit: NAMED } }),
  });
  return (
    <div className="grid gap-4 border-t border-dashed bg-paper px-3.5 py-3">
      <div className="min-w-0 space-y-3">
        <p className="font-mono text-xs break-words whitespace-pre-wrap text-soft">{visible(group.message ?? "")}</p>
        <ul className="space-y-1">
          {data?.items.map((job) => (
            <li key={job.id} className="flex gap-3 text-xs">
              <StateTag state={job.state} quiet />
              <Link to={`/jobs/${job.id}`} className="link cut" title={job.id}>
                {jobName(t, job)}
              </Link>
              <span className="font-mono text-2xs text-faint">{shortId(job.id)}</span>
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
    </div>
  );
}
