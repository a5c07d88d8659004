// Jobs that need a person: why each was given up; to be brought back, exported or purged.
import { useState } from "react";
import { tellTrouble } from "../api/actions";
import { call } from "../api/client";
import { type JobFilter, useJobs, useStats } from "../api/queries";
import { useFilter } from "../filters";
import { count } from "../format";
import { useWords } from "../i18n";
import { Empty, PageTitle, Skeleton, Trouble } from "../parts/basics";
import { JobTable, useSelection } from "../parts/job-table";
import { JobActions } from "../parts/selected";
import { Pager } from "./jobs";

/** Jobs that one export holds: a browser has to keep them in memory. */
const EXPORT_MAX = 10_000;

export function Dead() {
  const { t, language } = useWords();
  const { filter: given, cursor, turn, clear, isEmpty } = useFilter();
  const filter = { ...given, state: "dead" };
  const jobs = useJobs(filter, cursor);
  const stats = useStats();
  const selection = useSelection();
  const items = jobs.data?.items ?? [];
  return (
    <div>
      <PageTitle title={t("nav.dead")}>
        {stats.data && (
          <span className="text-faint">
            {t("dead.count", { count: stats.data.dead, shown: count(stats.data.dead, language) })}
          </span>
        )}
        {!isEmpty && (
          <button type="button" className="button button-quiet" onClick={clear}>
            {t("filter.clear")}
          </button>
        )}
        <span className="ml-auto">
          <Export filter={given} />
        </span>
      </PageTitle>
      <div className="panel">
        <div className="flex min-h-10 flex-wrap items-center gap-2 border-b px-3.5 py-1.5">
          <JobActions selection={selection} filter={filter} commands={["redrive", "delete"]} />
        </div>
        {jobs.error && !jobs.data && <Trouble error={jobs.error} again={jobs.refetch} />}
        {jobs.isLoading && <Skeleton rows={8} />}
        {jobs.data && items.length === 0 && <Empty>{t("dead.empty")}</Empty>}
        {items.length > 0 && <JobTable jobs={items} selection={selection} />}
        <Pager cursor={cursor} next={jobs.data?.nextCursor ?? undefined} turn={turn} />
      </div>
    </div>
  );
}

function Export({ filter }: { filter: JobFilter }) {
  const { t } = useWords();
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    try {
      save(await exported(filter), "dead-letters.jsonl");
    } catch (error) {
      tellTrouble(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <button type="button" className="button" disabled={isBusy} onClick={run}>
      {t("dead.export")}
    </button>
  );
}

/** One job a line, newest first. */
export async function exported({ state: _, ...filter }: JobFilter): Promise<string> {
  const lines: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await call("GET /api/v1/dead", { query: { ...filter, limit: 1000, ...(cursor ? { cursor } : {}) } });
    lines.push(...page.items.map((job) => `${JSON.stringify(job)}\n`));
    cursor = page.nextCursor ?? undefined;
  } while (cursor && lines.length < EXPORT_MAX);
  return lines.join("");
}

function save(text: string, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
