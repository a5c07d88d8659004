// Destinations that jobs wait for or have died of, as far as a look at the newest jobs tells.
import { useMemo } from "react";
import { Link } from "wouter";
import { useSample } from "../api/queries";
import type { JobView } from "../api/schema";
import { visible } from "../format";
import { useWords } from "../i18n";
import { Empty, Panel, Skeleton } from "./basics";

/** Where jobs wait after failures, and where they died, among the newest. */
export function Destinations({ show }: { show?: number }) {
  const { t } = useWords();
  const waiting = useSample("waiting");
  const dead = useSample("dead");
  const rows = useMemo(() => troubled(waiting.data?.items ?? [], dead.data?.items ?? []), [waiting.data, dead.data]);
  const most = Math.max(1, ...rows.map((row) => row.retrying + row.dead));
  return (
    <Panel title={t("destinations.trouble")}>
      {waiting.isLoading && <Skeleton rows={3} />}
      {!waiting.isLoading && rows.length === 0 && <Empty>{t("destinations.none")}</Empty>}
      <div className="rows">
        {rows.slice(0, show).map((row) => (
          <div
            key={row.name}
            data-row={`/jobs?destination=${encodeURIComponent(row.name)}`}
            tabIndex={-1}
            className="grid grid-cols-[1fr_6rem_9rem] items-center gap-3 px-3.5 py-2 hover:bg-hover"
          >
            <Link to={`/jobs?destination=${encodeURIComponent(row.name)}`} className="link cut">
              {visible(row.name)}
            </Link>
            <span aria-hidden="true" className="flex h-1.5 gap-px">
              <span className="bg-time" style={{ width: `${(row.retrying / most) * 100}%` }} />
              <span className="bg-bad" style={{ width: `${(row.dead / most) * 100}%` }} />
            </span>
            <span className="text-right text-2xs text-soft">
              {t("destinations.counts", { retrying: row.retrying, dead: row.dead })}
            </span>
          </div>
        ))}
      </div>
      {rows.length > 0 && <p className="label border-t px-3.5 py-1.5">{t("destinations.sample")}</p>}
    </Panel>
  );
}

export interface Troubled {
  name: string;
  retrying: number;
  dead: number;
}

export function troubled(waiting: readonly JobView[], dead: readonly JobView[]): Troubled[] {
  const all = new Map<string, Troubled>();
  const add = (job: JobView, field: "retrying" | "dead") => {
    if (!job.destination) return;
    const row = all.get(job.destination) ?? { name: job.destination, retrying: 0, dead: 0 };
    row[field] += 1;
    all.set(job.destination, row);
  };
  for (const job of waiting) if (job.failures > 0) add(job, "retrying");
  for (const job of dead) add(job, "dead");
  return [...all.values()].sort((one, other) => other.retrying + other.dead - one.retrying - one.dead);
}
