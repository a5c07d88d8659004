// One execution: its graph, where each step stands, and what can be done about it.
import { ArrowLeft } from "lucide-react";
import { Link, useLocation } from "wouter";
import { useCancelExecution, useRetryExecution, useRetryNode } from "../api/actions";
import { Refused } from "../api/client";
import type { Exact } from "../api/exact";
import { useExecution } from "../api/queries";
import type { ExecutionView, NodeView } from "../api/schema";
import { shortId, visible } from "../format";
import { kindName, useWords } from "../i18n";
import { Ago, Countdown, Empty, Panel, Progressed, Skeleton, StateTag, Trouble } from "../parts/basics";
import { Graph } from "../parts/graph";
import { JsonTree } from "../parts/json-tree";
import { useMay } from "../session";
import { Progress } from "./executions";

export function Execution({ id }: { id: string }) {
  const { t } = useWords();
  const { data, error, refetch } = useExecution(id);
  if (error) {
    const isGone = error instanceof Refused && error.status === 404;
    return (
      <div>
        <Back />
        {isGone ? <Empty>{t("execution.gone", { id: visible(id) })}</Empty> : <Trouble error={error} again={refetch} />}
      </div>
    );
  }
  if (!data) return <Skeleton rows={8} />;
  return (
    <div className="space-y-4">
      <div>
        <Back />
        <Head execution={data} />
      </div>
      <Panel title={t("execution.picture")}>
        <Graph nodes={data.nodes} />
      </Panel>
      <Panel title={t("execution.steps")} badge={String(data.nodes.length)}>
        <div className="rows">
          {data.nodes.map((node) => (
            <NodeRow key={node.nodeId} execution={data} node={node} />
          ))}
        </div>
      </Panel>
      <div className="grid items-start gap-4 xl:grid-cols-2">
        <Value title={t("execution.input")} value={data.input} />
        <Value title={t("execution.output")} value={data.output} />
      </div>
    </div>
  );
}

function Back() {
  const { t } = useWords();
  return (
    <Link to="/executions" className="link mb-2 inline-flex items-center gap-1.5 text-xs text-soft">
      <ArrowLeft aria-hidden className="size-3" />
      {t("nav.executions")}
    </Link>
  );
}

function Head({ execution }: { execution: ExecutionView }) {
  const { t } = useWords();
  const may = useMay("operate");
  const [, go] = useLocation();
  const retry = useRetryExecution((id) => go(`/executions/${id}`));
  const cancel = useCancelExecution();
  const { id, state, retryOf, retriedBy, retryAt, lastError } = execution;
  const isOver = ["succeeded", "retried", "dead", "cancelled"].includes(state);
  const canRetry = !retriedBy && ["dead", "cancelled", "retrying"].includes(state);
  return (
    <>
      <div className="flex flex-wrap items-center gap-3">
        <h1 className="text-lg font-semibold tracking-tight" title={id}>
          {t("execution.id")} <span className="font-mono text-xs font-normal text-faint">{shortId(id)}</span>
        </h1>
        <StateTag state={state} />
        <span className="w-40">
          <Progress execution={execution} />
        </span>
        <span className="text-faint">
          {t("execution.began")} <Ago at={execution.createdAt} />
        </span>
        {retryAt && (
          <span className="text-soft">
            {t("execution.again")} <Countdown until={retryAt} />
          </span>
        )}
        {may && (
          <span className="ml-auto flex gap-2">
            {canRetry && (
              <button type="button" className="button" disabled={retry.isPending} onClick={() => retry.mutate({ id })}>
                {t("execution.anew")}
              </button>
            )}
            {!isOver && (
              <button
                type="button"
                className="button button-quiet"
                disabled={cancel.isPending}
                onClick={() => cancel.mutate({ id })}
              >
                {t("retry.cancel")}
              </button>
            )}
          </span>
        )}
      </div>
      <p className="mt-2 flex max-w-4xl flex-wrap gap-x-4 text-soft">
        {retryOf && (
          <Link to={`/executions/${retryOf}`} className="link">
            {t("execution.retryof", { id: shortId(retryOf) })}
          </Link>
        )}
        {retriedBy && (
          <Link to={`/executions/${retriedBy}`} className="link">
            {t("execution.retriedby", { id: shortId(retriedBy) })}
          </Link>
        )}
        {lastError && <span className="text-bad">{visible(lastError)}</span>}
      </p>
    </>
  );
}

const columns =
  "grid grid-cols-[1fr_auto] items-center gap-x-4 gap-y-0.5 px-3.5 py-2 md:grid-cols-[minmax(7rem,1fr)_8rem_6rem_9rem_7rem_minmax(6rem,1.4fr)_6rem]";

function NodeRow({ execution, node }: { execution: ExecutionView; node: NodeView }) {
  const { t } = useWords();
  const may = useMay("operate");
  const retry = useRetryNode();
  const isRetried = Boolean(execution.retriedBy);
  const canRetry = !isRetried && (["dead", "cancelled"].includes(node.state) || node.reason === "backoff");
  const to = `/jobs/${node.jobId}`;
  return (
    <div data-row={to} tabIndex={-1} className={`${columns} hover:bg-hover`}>
      <Link to={to} className="link cut font-medium">
        {visible(node.nodeId)}
      </Link>
      <StateTag state={node.state} />
      <span className="cut text-xs text-soft">{kindName(t, node.kind)}</span>
      <span className="max-md:hidden">
        <Progressed job={node} />
      </span>
      <span className="text-xs text-soft max-md:text-right">
        <When node={node} />
      </span>
      <span className="cut text-xs text-soft max-md:col-span-2 max-md:empty:hidden">
        {node.lastError
          ? visible(node.lastError)
          : node.reason === "dependency" && t("execution.after", { names: node.after.map(visible).join(", ") })}
      </span>
      <span className="flex justify-end max-md:col-span-2 max-md:empty:hidden">
        {may && canRetry && (
          <button
            type="button"
            data-key="r"
            className="button"
            disabled={retry.isPending}
            onClick={() => retry.mutate({ id: execution.id, node: node.nodeId })}
          >
            {t("retry.now")}
          </button>
        )}
      </span>
    </div>
  );
}

function When({ node }: { node: NodeView }) {
  const { t } = useWords();
  if (node.dueAt) return <Countdown until={node.dueAt} />;
  if (node.runningSince) return <Ago at={node.runningSince} />;
  if (node.finishedAt) return <Ago at={node.finishedAt} />;
  return node.attempt > 0 ? <span>{t("timeline.run", { run: String(node.attempt) })}</span> : null;
}

function Value({ title, value }: { title: string; value: unknown }) {
  if (value === undefined || value === null) return null;
  return (
    <Panel title={title}>
      <div className="overflow-x-auto p-3.5 font-mono text-xs">
        <JsonTree value={value as Exact} />
      </div>
    </Panel>
  );
}
