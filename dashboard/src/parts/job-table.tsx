// A list of jobs: dense rows that can be walked, selected and acted upon.
import { useState } from "react";
import { Link } from "wouter";
import { useCancel, useRedrive, useRetryNow } from "../api/actions";
import type { JobView } from "../api/schema";
import { shortId, visible } from "../format";
import { kindName, reasonName, useWords } from "../i18n";
import { useMay } from "../session";
import { Ago, Due, Progressed, StateTag } from "./basics";
import { useHold } from "./hold";

export interface Selection {
  ids: ReadonlySet<string>;
  toggle: (id: string) => void;
  set: (ids: readonly string[]) => void;
}

export function useSelection(): Selection {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const toggle = (id: string) => {
    const next = new Set(ids);
    if (!next.delete(id)) next.add(id);
    setIds(next);
  };
  return { ids, toggle, set: (all) => setIds(new Set(all)) };
}

const columns =
  "grid grid-cols-[1.25rem_1fr_auto] items-center gap-x-3 gap-y-0.5 px-3.5 py-1.5 md:grid-cols-[1.25rem_8.5rem_minmax(9.25rem,1.3fr)_minmax(5rem,1fr)_7.5rem_5.25rem_5rem_9.5rem]";

export function JobTable({ jobs, selection }: { jobs: readonly JobView[]; selection: Selection }) {
  const { t } = useWords();
  const hold = useHold<readonly JobView[]>();
  // Rows that were there stay where they were; what they say is kept up to date.
  const fresh = new Map(jobs.map((job) => [job.id, job]));
  const shown = hold.held ? hold.held.map((job) => fresh.get(job.id) ?? job) : jobs;
  const known = new Set(shown.map((job) => job.id));
  const outside = jobs.filter((job) => !known.has(job.id)).length;
  const isAll = shown.length > 0 && shown.every((job) => selection.ids.has(job.id));
  return (
    <div>
      <div className={`${columns} label border-b`}>
        <input
          type="checkbox"
          aria-label={t("jobs.all")}
          checked={isAll}
          onChange={() => selection.set(isAll ? [] : shown.map((job) => job.id))}
        />
        <span className="max-md:hidden">{t("jobs.state")}</span>
        <span>{t("jobs.job")}</span>
        <span className="max-md:hidden">{t("jobs.destination")}</span>
        <span className="max-md:hidden">{t("jobs.retries")}</span>
        <span className="max-md:hidden">{t("jobs.when")}</span>
        <span className="max-md:hidden">{t("jobs.created")}</span>
        <span className="text-right">{outside > 0 && t("retry.held", { count: outside })}</span>
      </div>
      <div className="rows" {...hold.over(() => jobs)}>
        {shown.map((job) => (
          <JobRow
            key={job.id}
            job={job}
            isSelected={selection.ids.has(job.id)}
            toggle={() => selection.toggle(job.id)}
          />
        ))}
      </div>
    </div>
  );
}

function JobRow({ job, isSelected, toggle }: { job: JobView; isSelected: boolean; toggle: () => void }) {
  const { t } = useWords();
  const name = job.key ?? shortId(job.id);
  return (
    <div
      data-row={`/jobs/${job.id}`}
      tabIndex={-1}
      className={`${columns} hover:bg-hover ${isSelected ? "bg-hover" : ""}`}
    >
      <input
        type="checkbox"
        data-key="x"
        aria-label={t("jobs.select", { name: job.id })}
        checked={isSelected}
        onChange={toggle}
      />
      <span className="flex items-center gap-1.5 max-md:order-1 max-md:col-start-2">
        <StateTag state={job.state} />
        {job.why && <span className="cut text-2xs text-faint">{reasonName(t, job.why)}</span>}
      </span>
      <Link to={`/jobs/${job.id}`} className="link cut" title={job.id}>
        <span className="font-medium">{kindName(t, job.kind)}</span>{" "}
        <span className={job.key ? "text-soft" : "font-mono text-2xs text-faint"}>{visible(name)}</span>
      </Link>
      <span className="cut text-soft max-md:hidden">{visible(job.destination ?? job.queue)}</span>
      <span className="text-2xs max-md:hidden">
        <Progressed job={job} />
      </span>
      <span className="whitespace-nowrap text-2xs max-md:order-2 max-md:col-start-3 max-md:text-right">
        <JobTime job={job} />
      </span>
      <span className="whitespace-nowrap text-2xs text-faint max-md:hidden">
        <Ago at={job.createdAt} />
      </span>
      <span className="max-md:col-start-3 max-md:row-start-1">
        <RowActions job={job} />
      </span>
      {job.lastError && job.state !== "succeeded" && (
        <span
          className="cut col-start-2 col-end-[-1] text-2xs text-faint max-md:order-3 md:col-start-3"
          title={job.lastError.message}
        >
          {job.lastError.code && <span className="mr-1.5 font-mono text-soft">{visible(job.lastError.code)}</span>}
          {visible(job.lastError.message)}
        </span>
      )}
    </div>
  );
}

/** The time that matters in its state. */
export function JobTime({ job }: { job: JobView }) {
  if (job.dueAt) return <Due job={job} />;
  const at = job.runningSince ?? job.finishedAt;
  return at ? <Ago at={at} /> : null;
}

function RowActions({ job }: { job: JobView }) {
  const { t } = useWords();
  const may = useMay("operate");
  const trigger = useRetryNow();
  const cancel = useCancel();
  const redrive = useRedrive();
  if (!may) return null;
  const { id } = job;
  return (
    <span className="flex justify-end gap-1">
      {job.state === "waiting" && (
        <button
          type="button"
          data-key="r"
          className="button h-6"
          disabled={trigger.isPending}
          onClick={() => trigger.mutate({ id })}
        >
          {t("retry.now")}
        </button>
      )}
      {(job.state === "waiting" || job.state === "running") && (
        <button
          type="button"
          data-key="c"
          className="button button-quiet h-6"
          disabled={cancel.isPending}
          onClick={() => cancel.mutate({ id, dueAt: job.dueAt ?? undefined })}
        >
          {t("retry.cancel")}
        </button>
      )}
      {(job.state === "dead" || job.state === "cancelled") && (
        <button
          type="button"
          data-key="r"
          className="button h-6"
          disabled={redrive.isPending}
          onClick={() => redrive.mutate({ id })}
        >
          {t("job.redrive")}
        </button>
      )}
    </span>
  );
}
