// One job: where it stands and why, what it has been through, what it carries, and what can be done about it.
import { ArrowLeft, Copy, UserRound } from "lucide-react";
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import { useCancel, useForget, useRedrive, useRetryNow, useSnooze } from "../api/actions";
import { Refused } from "../api/client";
import type { Exact } from "../api/exact";
import { useActivity, useAudit, useExplain, useJob } from "../api/queries";
import type { AttemptView, AuditView, DetailView } from "../api/schema";
import { asCurl, copy } from "../copy";
import { duration, visible } from "../format";
import { jobName, type Key, useWords } from "../i18n";
import { ActivityLine } from "../parts/activity-log";
import { Ago, ClockTime, Due, Empty, Panel, Progressed, Skeleton, StateTag, Told, Trouble } from "../parts/basics";
import { EditPayload } from "../parts/edit-payload";
import { JsonTree } from "../parts/json-tree";
import { backoffText, type PolicyForm } from "../parts/retry-queue";
import { outcomeColour, Timeline } from "../parts/timeline";
import { useMay } from "../session";

export function Job({ id }: { id: string }) {
  const { t } = useWords();
  const job = useJob(id);
  const explained = useExplain(id, job.data !== undefined);
  if (job.error) {
    const isGone = job.error instanceof Refused && job.error.status === 404;
    return (
      <div>
        <Back />
        {isGone ? (
          <Empty>{t("job.gone", { id: visible(id) })}</Empty>
        ) : (
          <Trouble error={job.error} again={job.refetch} />
        )}
      </div>
    );
  }
  if (!job.data) return <Skeleton rows={8} />;
  return (
    <div className="space-y-4">
      <div>
        <Back />
        <Head job={job.data} />
        {explained.data && (
          <p data-testid="explain" className="mt-2 max-w-3xl text-soft">
            <Told text={explained.data.summary} />
            {explained.data.destination && (
              <Link to="/destinations" className="link ml-2 text-xs text-faint">
                {t("nav.destinations")}
              </Link>
            )}
          </p>
        )}
      </div>
      <Panel title={t("timeline.title")}>
        <div className="p-3.5">
          <Timeline job={job.data} {...(explained.data ? { explained: explained.data } : {})} />
        </div>
      </Panel>
      <div className="grid items-start gap-4 xl:grid-cols-[3fr_2fr]">
        <div className="space-y-4">
          <Payload job={job.data} />
          <Attempts attempts={job.data.attempts} />
        </div>
        <div className="space-y-4">
          <Facts job={job.data} />
          <History job={job.data} />
        </div>
      </div>
    </div>
  );
}

function Back() {
  const { t } = useWords();
  return (
    <Link to="/jobs" className="link mb-2 inline-flex items-center gap-1 text-xs text-faint">
      <ArrowLeft aria-hidden className="size-3" />
      {t("nav.jobs")}
    </Link>
  );
}

function Head({ job }: { job: DetailView }) {
  const { t } = useWords();
  return (
    <div className="flex flex-wrap items-center gap-x-4 gap-y-2" data-row={`/jobs/${job.id}`}>
      <h1 className="text-lg font-semibold tracking-tight">{jobName(t, job)}</h1>
      <StateTag state={job.state} />
      {job.dueAt && <Due job={job} />}
      <Progressed job={job} />
      <button
        type="button"
        className="link inline-flex items-center gap-1 font-mono text-2xs text-faint"
        title={t("job.copyid")}
        onClick={() => copy(job.id)}
      >
        {job.id}
        <Copy aria-hidden className="size-3" />
      </button>
      <Actions job={job} />
    </div>
  );
}

function Actions({ job }: { job: DetailView }) {
  const { t } = useWords();
  const may = useMay("operate");
  const trigger = useRetryNow();
  const cancel = useCancel();
  const redrive = useRedrive();
  const forget = useForget();
  const snooze = useSnooze();
  const { id, state } = job;
  const isOver = state !== "waiting" && state !== "running";
  return (
    <div className="flex flex-wrap gap-1.5 max-sm:-ml-2.5 max-sm:w-full sm:ml-auto">
      {job.payload !== undefined && (
        <button type="button" className="button button-quiet" onClick={() => copy(asCurl(job, location.origin))}>
          {t("job.curl")}
        </button>
      )}
      {may && state === "waiting" && (
        <button
          type="button"
          className="button button-quiet"
          disabled={snooze.isPending}
          onClick={() => snooze.mutate({ id, delay: "1h" })}
        >
          {t("job.snooze")}
        </button>
      )}
      {may && state === "waiting" && (
        <button
          type="button"
          data-key="r"
          className="button"
          disabled={trigger.isPending}
          onClick={() => trigger.mutate({ id })}
        >
          {t("retry.now")}
        </button>
      )}
      {may && !isOver && (
        <button
          type="button"
          data-key="c"
          className="button"
          disabled={cancel.isPending}
          onClick={() => cancel.mutate({ id, dueAt: job.dueAt ?? undefined })}
        >
          {t("retry.cancel")}
        </button>
      )}
      {may && (state === "dead" || state === "cancelled") && (
        <button
          type="button"
          data-key="r"
          className="button button-strong"
          disabled={redrive.isPending}
          onClick={() => redrive.mutate({ id })}
        >
          {t("job.redrive")}
        </button>
      )}
      {may && isOver && (
        <button
          type="button"
          className="button button-danger"
          disabled={forget.isPending}
          onClick={() => forget.mutate({ id })}
        >
          {t("job.delete")}
        </button>
      )}
    </div>
  );
}

function Payload({ job }: { job: DetailView }) {
  const { t } = useWords();
  const may = useMay("operate");
  const [isEdited, setEdited] = useState(false);
  const canEdit = may && job.payload !== undefined && job.state !== "running" && job.state !== "succeeded";
  return (
    <Panel
      title={t("job.payload")}
      tools={
        canEdit && (
          <button type="button" data-key="e" className="button h-6" onClick={() => setEdited(true)}>
            {t("job.edit")}
          </button>
        )
      }
    >
      <div className="p-3.5 pl-7">
        {job.payload === undefined ? (
          <p className="text-faint">{t("job.nopayload")}</p>
        ) : (
          <JsonTree value={job.payload as Exact} />
        )}
      </div>
      {job.output !== undefined && (
        <div className="border-t p-3.5 pl-7">
          <h3 className="label mb-1 -ml-3.5">{t("job.output")}</h3>
          <JsonTree value={job.output as Exact} />
        </div>
      )}
      {isEdited && <EditPayload job={job} onClose={() => setEdited(false)} />}
    </Panel>
  );
}

function Attempts({ attempts }: { attempts: readonly AttemptView[] }) {
  const { t } = useWords();
  return (
    <Panel title={t("job.attempts")} badge={String(attempts.length)}>
      {attempts.length === 0 && <Empty>{t("job.noattempts")}</Empty>}
      <div className="rows">
        {[...attempts].reverse().map((attempt) => (
          <div
            key={`${attempt.attempt}${attempt.startedAt}`}
            className="grid grid-cols-[auto_1fr_auto] gap-x-3 px-3.5 py-2"
          >
            <span className="font-mono text-faint">{attempt.attempt === 0 ? "–" : attempt.attempt}</span>
            <div className="min-w-0">
              <p className="flex flex-wrap items-baseline gap-x-2">
                <span className={outcomeColour(attempt.ending)}>{t(`ending.${attempt.ending}`)}</span>
                {attempt.failure && (
                  <span className="text-2xs text-faint">
                    {[attempt.failure.class, attempt.failure.code, attempt.failure.status].filter(Boolean).join(" · ")}
                  </span>
                )}
                {attempt.group && (
                  <Link to={`/errors?group=${encodeURIComponent(attempt.group)}`} className="link text-2xs text-faint">
                    {t("job.samegroup")}
                  </Link>
                )}
              </p>
              {attempt.failure && (
                <p className="text-xs break-words whitespace-pre-wrap text-soft">{visible(attempt.failure.message)}</p>
              )}
              {attempt.rule && <p className="text-2xs text-faint">{t("job.rule", { rule: visible(attempt.rule) })}</p>}
            </div>
            <div className="text-right text-2xs text-faint">
              <ClockTime at={attempt.startedAt} />
              <p className="font-mono">{duration(Date.parse(attempt.endedAt) - Date.parse(attempt.startedAt))}</p>
            </div>
          </div>
        ))}
      </div>
    </Panel>
  );
}

function Facts({ job }: { job: DetailView }) {
  const { t } = useWords();
  const policy = job.policy as PolicyForm;
  const facts: [Key, ReactNode][] = [
    ["fact.queue", job.queue],
    [
      "fact.destination",
      job.destination && (
        <Link className="link" to={`/jobs?destination=${encodeURIComponent(job.destination)}`}>
          {visible(job.destination)}
        </Link>
      ),
    ],
    ["fact.key", job.key && visible(job.key)],
    ["fact.order", job.orderingKey && visible(job.orderingKey)],
    ["fact.policy", `${policy.name ?? t("why.own")} · ${backoffText(policy)}`],
    ["fact.priority", job.priority === 0 ? undefined : String(job.priority)],
    ["fact.created", <Ago key="created" at={job.createdAt} />],
    ["fact.author", job.createdBy && visible(job.createdBy)],
    ["fact.finished", job.finishedAt && <Ago at={job.finishedAt} />],
    ["fact.deadline", job.deadline && <ClockTime at={job.deadline} />],
    ["fact.run", String(job.attempt)],
    ["fact.crashes", job.crashes || undefined],
    ["fact.snoozes", job.snoozes || undefined],
    ["fact.holds", job.holds || undefined],
    ["fact.generation", job.generation || undefined],
    [
      "fact.parent",
      job.parent && (
        <Link className="link font-mono" to={`/jobs/${job.parent}`}>
          {job.parent}
        </Link>
      ),
    ],
  ];
  return (
    <Panel title={t("job.facts")}>
      <dl className="grid grid-cols-[auto_1fr] gap-x-4 gap-y-1 p-3.5 text-xs">
        {facts
          .filter(([, value]) => value !== undefined && value !== null && value !== "")
          .map(([name, value]) => (
            <div key={name} className="contents">
              <dt className="text-faint">{t(name)}</dt>
              <dd className="min-w-0 break-words">{value}</dd>
            </div>
          ))}
        {Object.entries(job.labels).map(([name, value]) => (
          <div key={name} className="contents">
            <dt className="text-faint">{visible(name)}</dt>
            <dd className="min-w-0 break-words">
              <Link className="link" to={`/jobs?label=${encodeURIComponent(`${name}=${value}`)}`}>
                {visible(value)}
              </Link>
            </dd>
          </div>
        ))}
      </dl>
    </Panel>
  );
}

/** What happened to it and what people did to it, newest first: the activity log, the audit log, and earlier payloads. */
function History({ job }: { job: DetailView }) {
  const { t } = useWords();
  const { data: activity } = useActivity(1000);
  const { data: audit } = useAudit(job.id);
  const happened = (activity ?? []).filter((line) => line.job === job.id);
  const lines: { at: string; key: string; shown: ReactNode }[] = [
    ...happened.map((line) => ({
      at: line.at,
      key: `${line.at}${line.what}`,
      shown: <ActivityLine line={line} isOwn />,
    })),
    ...(audit?.items ?? []).map((line) => ({ at: line.at, key: line.id, shown: <AuditLine line={line} /> })),
  ].sort((one, other) => other.at.localeCompare(one.at));
  return (
    <Panel title={t("job.history")}>
      {lines.length === 0 && <Empty>{t("job.nohistory")}</Empty>}
      <div className="rows">
        {lines.map((line) => (
          <div key={line.key}>{line.shown}</div>
        ))}
      </div>
      {job.edits.length > 0 && <Edits job={job} />}
    </Panel>
  );
}

function AuditLine({ line }: { line: AuditView }) {
  const { t } = useWords();
  return (
    <div className="grid grid-cols-[auto_1fr_auto] gap-x-2.5 px-3.5 py-2">
      <UserRound aria-hidden className="mt-0.5 size-3 text-soft" />
      <div className="min-w-0">
        <p className="flex flex-wrap gap-x-1.5">
          <span className="font-mono text-xs">{visible(line.what)}</span>
          <span className="text-soft">{t("job.by", { who: visible(line.who) })}</span>
          {line.result !== "done" && <span className="text-bad">{visible(line.result)}</span>}
        </p>
        {line.detail && (
          <p className="cut text-xs text-faint" title={line.detail}>
            {visible(line.detail)}
          </p>
        )}
      </div>
      <span className="text-faint">
        <ClockTime at={line.at} />
      </span>
    </div>
  );
}

/** What it carried before somebody changed it. */
function Edits({ job }: { job: DetailView }) {
  const { t } = useWords();
  return (
    <div className="border-t px-3.5 py-2">
      {job.edits.map(({ at, by, ...before }) => (
        <details key={at} className="py-0.5">
          <summary className="text-xs text-soft">
            {t("job.before", { who: visible(by) })} <ClockTime at={at} />
          </summary>
          <div className="py-1 pl-4">
            <JsonTree value={before as Exact} />
          </div>
        </details>
      ))}
    </div>
  );
}
