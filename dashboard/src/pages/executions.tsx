// Executions of workflows, newest first: how far each has come, and what it stopped at.
import { Link, useSearchParams } from "wouter";
import { useExecutions } from "../api/queries";
import type { ExecutionPageView } from "../api/schema";
import { shortId, visible } from "../format";
import { useWords } from "../i18n";
import { Ago, Empty, PageTitle, Skeleton, StateTag, Trouble } from "../parts/basics";
import { Pager } from "./jobs";

const columns =
  "grid grid-cols-[1fr_auto] items-center gap-x-4 gap-y-0.5 px-3.5 py-2 md:grid-cols-[8rem_7rem_11rem_7rem_minmax(8rem,1fr)]";

export function Executions() {
  const { t } = useWords();
  const [search, setSearch] = useSearchParams();
  const cursor = search.get("cursor") ?? undefined;
  const executions = useExecutions(cursor);
  const items = executions.data?.items ?? [];
  return (
    <div>
      <PageTitle title={t("nav.executions")} />
      <div className="panel">
        <div className={`${columns} label border-b max-md:hidden`}>
          <span>{t("jobs.state")}</span>
          <span>{t("execution.id")}</span>
          <span>{t("execution.nodes")}</span>
          <span>{t("execution.started")}</span>
          <span>{t("execution.error")}</span>
        </div>
        {executions.error && !executions.data && <Trouble error={executions.error} again={executions.refetch} />}
        {executions.isLoading && <Skeleton rows={6} />}
        {executions.data && items.length === 0 && <Empty>{t("execution.none")}</Empty>}
        <div className="rows">
          {items.map((execution) => (
            <Row key={execution.id} execution={execution} />
          ))}
        </div>
        <Pager
          cursor={cursor}
          next={executions.data?.nextCursor ?? undefined}
          turn={(next) => setSearch(next ? { cursor: next } : {})}
        />
      </div>
    </div>
  );
}

function Row({ execution }: { execution: ExecutionPageView }) {
  const { t } = useWords();
  const to = `/executions/${execution.id}`;
  return (
    <div data-row={to} tabIndex={-1} className={`${columns} hover:bg-hover`}>
      <StateTag state={execution.state} />
      <Link to={to} className="link font-mono text-xs">
        {shortId(execution.id)}
        {execution.retry > 0 && <span className="ml-2 text-faint">{t("execution.retry", { n: execution.retry })}</span>}
      </Link>
      <Progress execution={execution} />
      <Ago at={execution.createdAt} />
      <span className="cut text-xs text-soft">{execution.lastError ? visible(execution.lastError) : ""}</span>
    </div>
  );
}

/** How many of its nodes are done. */
export function Progress({ execution }: { execution: Pick<ExecutionPageView, "counts"> }) {
  const { t } = useWords();
  const { succeeded, total, dead } = execution.counts;
  const share = total === 0 ? 0 : succeeded / total;
  return (
    <span className="flex items-center gap-2 text-xs">
      <span aria-hidden="true" className="h-1.5 flex-1 overflow-hidden rounded-full bg-line">
        <span className={`block h-full ${dead > 0 ? "bg-bad" : "bg-good"}`} style={{ width: `${share * 100}%` }} />
      </span>
      <span className="font-mono text-2xs">{t("execution.done", { done: succeeded, total })}</span>
    </span>
  );
}
