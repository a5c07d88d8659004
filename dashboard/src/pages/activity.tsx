// The whole activity log, append-only, filtered by what happened and by any word.
import { useState } from "react";
import { useActivity } from "../api/queries";
import { useParam } from "../filters";
import { type Key, useWords } from "../i18n";
import { ActivityLine, folded, WHATS } from "../parts/activity-log";
import { Empty, PageTitle, Skeleton, Trouble } from "../parts/basics";

const LIMIT = 500;

export function Activity() {
  const { t } = useWords();
  const { data, isLoading, error, refetch } = useActivity(LIMIT);
  const [what, choose] = useParam("what");
  const [word, setWord] = useState("");
  const needle = word.trim().toLowerCase();
  const lines = data?.filter((line) => {
    const text = `${line.kind} ${line.queue} ${line.job} ${line.message}`.toLowerCase();
    return (!what || line.what === what) && text.includes(needle);
  });
  return (
    <div>
      <PageTitle title={t("nav.activity")} />
      <div className="mb-3 flex flex-wrap items-end gap-2">
        <fieldset className="flex flex-wrap gap-0.5 rounded-md border p-0.5">
          <legend className="sr-only">{t("activity.what")}</legend>
          {["", ...WHATS].map((one) => (
            <button
              key={one}
              type="button"
              aria-pressed={what === one}
              className={`rounded px-2 py-1 text-xs ${what === one ? "bg-line text-ink" : "text-soft hover:text-ink"}`}
              onClick={() => choose(one)}
            >
              {one ? t(`what.${one}` as Key) : t("jobs.any")}
            </button>
          ))}
        </fieldset>
        <input
          data-search
          className="field w-56"
          aria-label={t("activity.find")}
          placeholder={t("activity.find")}
          value={word}
          onChange={(event) => setWord(event.target.value)}
        />
      </div>
      <div className="panel">
        {error && !data && <Trouble error={error} again={refetch} />}
        {isLoading && <Skeleton rows={10} />}
        {lines?.length === 0 && <Empty>{data?.length === 0 ? t("activity.empty") : t("activity.nomatch")}</Empty>}
        <div className="rows">
          {folded(lines ?? []).map((line) => (
            <ActivityLine key={`${line.what}${line.job}${line.message}`} line={line} />
          ))}
        </div>
        {data && data.length >= LIMIT && (
          <p className="label border-t px-3.5 py-1.5">{t("activity.latest", { count: LIMIT })}</p>
        )}
      </div>
    </div>
  );
}
