// What can be done to the jobs that are selected, and to everything that matches the filter.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { tellTrouble } from "../api/actions";
import { call } from "../api/client";
import type { JobFilter } from "../api/queries";
import { useWords } from "../i18n";
import { useMay } from "../session";
import { toasts } from "../toasts";
import { BulkDialog, type BulkPlan, type ListCommand } from "./bulk";
import type { Selection } from "./job-table";

const perJob = {
  retry: (id: string) => call("POST /api/v1/jobs/{id}/retry", { path: { id } }),
  cancel: (id: string) => call("POST /api/v1/jobs/{id}/cancel", { path: { id } }),
  redrive: (id: string) => call("POST /api/v1/jobs/{id}/redrive", { path: { id } }),
  delete: (id: string) => call("DELETE /api/v1/jobs/{id}", { path: { id } }),
} satisfies Record<ListCommand, (id: string) => Promise<unknown>>;

/** Does it to each, a few at a time; what is refused is counted and does not stop the rest. */
export async function toEach(ids: readonly string[], run: (id: string) => Promise<unknown>) {
  const left = [...ids];
  let done = 0;
  const refused: unknown[] = [];
  const worker = async () => {
    for (let id = left.shift(); id !== undefined; id = left.shift()) {
      try {
        await run(id);
        done += 1;
      } catch (error) {
        refused.push(error);
      }
    }
  };
  await Promise.all([worker(), worker(), worker(), worker()]);
  return { done, refused };
}

export function JobActions(props: { selection: Selection; filter: JobFilter; commands: readonly ListCommand[] }) {
  const { t } = useWords();
  const may = useMay("operate");
  const client = useQueryClient();
  const [plan, setPlan] = useState<BulkPlan>();
  const [isBusy, setBusy] = useState(false);
  const { selection } = props;
  const selected = [...selection.ids];
  if (!may) return null;
  const run = async (command: ListCommand) => {
    setBusy(true);
    const { done, refused } = await toEach(selected, perJob[command]);
    setBusy(false);
    selection.set([]);
    if (done > 0) toasts.push({ tone: "good", text: `bulk.${command}.done`, values: { count: done } });
    if (refused.length > 0) tellTrouble(refused[0]);
    client.invalidateQueries();
  };
  return (
    <div className={`flex flex-wrap items-center gap-1.5 ${selected.length === 0 ? "-ml-2.5" : ""}`}>
      {selected.length > 0 && <span className="text-soft">{t("jobs.selected", { count: selected.length })}</span>}
      {selected.length > 0 &&
        props.commands
          // What cannot be brought back is done from its own page, by filter, with a word to type.
          .filter((command) => command !== "delete")
          .map((command) => (
            <button key={command} type="button" className="button" disabled={isBusy} onClick={() => run(command)}>
              {t(`bulk.${command}.few`)}
            </button>
          ))}
      {selected.length === 0 &&
        props.commands.map((command) => (
          <button
            key={command}
            type="button"
            className="button button-quiet"
            onClick={() => setPlan({ command, filter: props.filter })}
          >
            {t(`bulk.${command}.all`)}
          </button>
        ))}
      {plan && <BulkDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </div>
  );
}
