// All jobs, newest first: filtered by what stands in the URL, a page at a time.
import { Search } from "lucide-react";
import { useEffect, useState } from "react";
import { useLocation } from "wouter";
import { useJobs, useQueues } from "../api/queries";
import { type Field, useFilter } from "../filters";
import { useWords } from "../i18n";
import { Empty, PageTitle, Skeleton, Trouble } from "../parts/basics";
import { JobTable, useSelection } from "../parts/job-table";
import { JobActions } from "../parts/selected";

const STATES = ["waiting", "running", "succeeded", "dead", "cancelled"] as const;

export function Jobs() {
  const { t } = useWords();
  const { filter, cursor, turn } = useFilter();
  const jobs = useJobs(filter, cursor);
  const selection = useSelection();
  const items = jobs.data?.items ?? [];
  return (
    <div>
      <PageTitle title={t("nav.jobs")} />
      <FilterBar />
      <div className="panel mt-3">
        <div className="flex min-h-10 flex-wrap items-center gap-2 border-b px-3.5 py-1.5 empty:hidden">
          <JobActions selection={selection} filter={filter} commands={["retry", "cancel", "redrive"]} />
        </div>
        {jobs.error && !jobs.data && <Trouble error={jobs.error} again={jobs.refetch} />}
        {jobs.isLoading && <Skeleton rows={10} />}
        {jobs.data && items.length === 0 && <Empty>{t("jobs.empty")}</Empty>}
        {items.length > 0 && <JobTable jobs={items} selection={selection} />}
        <Pager cursor={cursor} next={jobs.data?.nextCursor ?? undefined} turn={turn} />
      </div>
    </div>
  );
}

export function Pager(props: {
  cursor: string | undefined;
  next: string | undefined;
  turn: (to: string | undefined) => void;
}) {
  const { t } = useWords();
  if (!props.cursor && !props.next) return null;
  return (
    <nav aria-label={t("jobs.pages")} className="flex justify-end gap-2 border-t px-3.5 py-2">
      <button type="button" className="button" disabled={!props.cursor} onClick={() => props.turn(undefined)}>
        {t("jobs.newest")}
      </button>
      <button type="button" className="button" disabled={!props.next} onClick={() => props.turn(props.next)}>
        {t("jobs.older")}
      </button>
    </nav>
  );
}

/** On a phone these wait behind a button: they would fill half the screen. */
const RARER = ["kind", "queue", "destination", "key", "label", "group"] as const;

function FilterBar() {
  const { t } = useWords();
  const { filter, change, clear, isEmpty } = useFilter();
  const queues = useQueues();
  const isFiltered = RARER.some((field) => filter[field]);
  const [isOpen, setOpen] = useState(isFiltered);
  return (
    <div className="flex flex-wrap items-end gap-2">
      <fieldset className="flex flex-wrap gap-0.5 rounded-md border p-0.5">
        <legend className="sr-only">{t("jobs.state")}</legend>
        {["", ...STATES].map((state) => {
          const isOn = (filter.state ?? "") === state;
          return (
            <button
              key={state}
              type="button"
              aria-pressed={isOn}
              className={`rounded px-2 py-1 text-xs ${isOn ? "bg-line text-ink" : "text-soft hover:text-ink"}`}
              onClick={() => change({ state })}
            >
              {state ? t(`state.${state as (typeof STATES)[number]}`) : t("jobs.any")}
            </button>
          );
        })}
      </fieldset>
      <FindJob />
      <button type="button" className="button md:hidden" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {t("filter.more")}
      </button>
      <div className={isOpen ? "contents" : "hidden md:contents"}>
        <FilterField field="kind" />
        <label className="flex flex-col">
          <span className="label">{t("filter.queue")}</span>
          <select
            className="field w-28"
            value={filter.queue ?? ""}
            onChange={(event) => change({ queue: event.target.value })}
          >
            <option value="">{t("jobs.any")}</option>
            {queues.data?.map((queue) => (
              <option key={queue.name}>{queue.name}</option>
            ))}
          </select>
        </label>
        <FilterField field="destination" />
        <FilterField field="key" />
        <FilterField field="label" />
        {filter.group && <FilterField field="group" />}
      </div>
      {!isEmpty && (
        <button type="button" className="button button-quiet" onClick={clear}>
          {t("filter.clear")}
        </button>
      )}
    </div>
  );
}

/** Takes effect with Enter or when it is left, so that half a word asks for nothing. */
function FilterField({ field }: { field: Field }) {
  const { t } = useWords();
  const { filter, change } = useFilter();
  const value = filter[field] ?? "";
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const apply = () => text.trim() !== value && change({ [field]: text.trim() });
  return (
    <label className="flex flex-col">
      <span className="label">{t(`filter.${field}`)}</span>
      <input
        className="field w-28"
        value={text}
        placeholder={field === "label" ? "name=value" : ""}
        onChange={(event) => setText(event.target.value)}
        onBlur={apply}
        onKeyDown={(event) => event.key === "Enter" && apply()}
      />
    </label>
  );
}

/** A job by its id, from anywhere: `/` leads here. */
export function FindJob() {
  const { t } = useWords();
  const [, go] = useLocation();
  const [text, setText] = useState("");
  return (
    <search>
      <form
        className="flex flex-col"
        onSubmit={(event) => {
          event.preventDefault();
          const wanted = text.trim();
          if (wanted) go(isId(wanted) ? `/jobs/${wanted}` : `/jobs?key=${encodeURIComponent(wanted)}`);
        }}
      >
        <label className="relative">
          <span className="label block">{t("jobs.find")}</span>
          <Search aria-hidden className="pointer-events-none absolute bottom-2 left-2 size-3 text-faint" />
          <input
            data-search
            className="field w-44 pl-6"
            placeholder={t("jobs.find.hint")}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </label>
      </form>
    </search>
  );
}

export function isId(text: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
}
