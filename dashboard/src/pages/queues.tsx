// Our capacity: the queues, how full they are, and whether they hand out jobs.
import { Pause, Play } from "lucide-react";
import { Link } from "wouter";
import { usePauseQueue } from "../api/actions";
import { useQueues } from "../api/queries";
import type { QueueView } from "../api/schema";
import { count, visible } from "../format";
import { useWords } from "../i18n";
import { PageTitle, Skeleton, Trouble } from "../parts/basics";
import { useMay } from "../session";

const columns =
  "grid grid-cols-[1fr_auto] items-center gap-x-4 gap-y-1 px-3.5 py-2.5 md:grid-cols-[minmax(8rem,1fr)_12rem_5rem_5rem_7rem_7rem]";

export function Queues() {
  const { t } = useWords();
  const { data, isLoading, error, refetch } = useQueues();
  return (
    <div>
      <PageTitle title={t("nav.queues")} />
      <div className="panel">
        <div className={`${columns} label border-b max-md:hidden`}>
          <span>{t("queues.name")}</span>
          <span>{t("queues.places")}</span>
          <span className="text-right">{t("queues.waiting")}</span>
          <span className="text-right">{t("queues.dead")}</span>
          <span className="text-right">{t("queues.succeeded")}</span>
          <span />
        </div>
        {error && !data && <Trouble error={error} again={refetch} />}
        {isLoading && <Skeleton rows={3} />}
        <div className="rows">
          {data?.map((queue) => (
            <QueueRow key={queue.name} queue={queue} />
          ))}
        </div>
      </div>
    </div>
  );
}

function QueueRow({ queue }: { queue: QueueView }) {
  const { t, language } = useWords();
  const may = useMay("operate");
  const pause = usePauseQueue();
  const link = (state: string) => `/jobs?queue=${encodeURIComponent(queue.name)}&state=${state}`;
  return (
    <div
      data-row={`/jobs?queue=${encodeURIComponent(queue.name)}`}
      tabIndex={-1}
      className={`${columns} hover:bg-hover`}
    >
      <span className="flex min-w-0 items-center gap-2">
        <Link to={`/jobs?queue=${encodeURIComponent(queue.name)}`} className="link cut font-medium">
          {visible(queue.name)}
        </Link>
        {queue.paused && (
          <span className="rounded border border-line-strong px-1 text-2xs text-soft">{t("queues.paused")}</span>
        )}
      </span>
      <Places running={queue.running} places={queue.concurrency} />
      <Link to={link("waiting")} className="link font-mono text-xs md:text-right">
        <span className="font-sans text-faint md:hidden">{t("queues.waiting")} </span>
        {count(queue.waiting, language)}
      </Link>
      <Link to={link("dead")} className={`link text-right font-mono text-xs ${queue.dead > 0 ? "text-bad" : ""}`}>
        <span className="font-sans text-faint md:hidden">{t("queues.dead")} </span>
        {count(queue.dead, language)}
      </Link>
      <span className="font-mono text-xs text-soft md:text-right">
        <span className="font-sans text-faint md:hidden">{t("queues.succeeded")} </span>
        {count(queue.succeeded, language)}
      </span>
      <span className="flex justify-end">
        {may && (
          <button
            type="button"
            data-key="p"
            className="button"
            disabled={pause.isPending}
            onClick={() => pause.mutate({ name: queue.name, paused: !queue.paused })}
          >
            {queue.paused ? <Play aria-hidden className="size-3" /> : <Pause aria-hidden className="size-3" />}
            {queue.paused ? t("queues.resume") : t("queues.pause")}
          </button>
        )}
      </span>
    </div>
  );
}

/** How many places are in use of those that this server has. */
function Places({ running, places }: { running: number; places?: number | null | undefined }) {
  const { t } = useWords();
  if (places == null) return <span className="text-2xs text-faint">{t("queues.elsewhere", { count: running })}</span>;
  const share = Math.min(1, running / Math.max(1, places));
  return (
    <span className="flex items-center gap-2 text-xs">
      <span aria-hidden="true" className="h-1.5 min-w-16 flex-1 overflow-hidden rounded-full bg-line">
        <span className="block h-full bg-soft" style={{ width: `${share * 100}%` }} />
      </span>
      <span className="font-mono text-2xs">{t("queues.inuse", { running, places })}</span>
    </span>
  );
}
