// Doing something to everything that matches: first a count, then a word to confirm it, then how far it is, with a way to
// stop. The server does the work as an operation of its own: closing the window, or the browser, does not stop it.
import { useQueryClient } from "@tanstack/react-query";
import { type Dispatch, type SetStateAction, useEffect, useState } from "react";
import { tellTrouble } from "../api/actions";
import { call } from "../api/client";
import type { JobFilter } from "../api/queries";
import type { BulkCommand, BulkView, OperationView } from "../api/schema";
import { useWords } from "../i18n";
import { toasts } from "../toasts";
import { Trouble } from "./basics";
import { Dialog } from "./dialog";

type Step =
  | { at: "counting" }
  | { at: "counted"; view: BulkView }
  | { at: "working"; operation: OperationView; isStopping: boolean }
  | { at: "stopped"; done: number }
  | { at: "failed"; error: unknown };

/** How often it is asked how far an operation is. */
const ASK_MS = 300;

/** What is offered for a list. To snooze, reschedule or edit many is asked for elsewhere. */
export type ListCommand = Exclude<BulkCommand, "snooze" | "reschedule" | "edit">;

export interface BulkPlan {
  command: ListCommand;
  filter: JobFilter;
}

/** The states in which a command can be carried out: asked for with the filter, so that the count is of those. */
const fits: Record<ListCommand, string[]> = {
  retry: ["waiting"],
  cancel: ["waiting", "running"],
  redrive: ["dead", "cancelled"],
  delete: ["succeeded", "dead", "cancelled"],
};

/** The filter that is meant: of the states that the command fits, the one that is asked for or the usual one. */
export function narrowed({ command, filter }: BulkPlan): JobFilter {
  const fitting = fits[command];
  return { ...filter, state: filter.state && fitting.includes(filter.state) ? filter.state : (fitting[0] ?? "") };
}

export function BulkDialog({ plan, onClose }: { plan: BulkPlan; onClose: () => void }) {
  const { t } = useWords();
  const filter = narrowed(plan);
  const { command } = plan;
  const [step, setStep] = useState<Step>({ at: "counting" });
  const [typed, setTyped] = useState("");
  const body = { command, filter };
  const key = JSON.stringify(body);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key is what the body says
  useEffect(() => {
    call("POST /api/v1/jobs/commands", { body: { ...body, dryRun: true } })
      .then((view) => setStep({ at: "counted", view }))
      .catch((error) => setStep({ at: "failed", error }));
  }, [key]);
  useWatched(command, step, setStep, onClose);
  const start = () =>
    call("POST /api/v1/jobs/commands", { body: { ...body, dryRun: false, background: true } })
      .then(({ operation }) => operation && setStep({ at: "working", operation, isStopping: false }))
      .catch((error) => setStep({ at: "failed", error }));
  const stop = () => {
    if (step.at !== "working") return;
    setStep({ ...step, isStopping: true });
    // One that has ended meanwhile refuses to be stopped, and is seen to have ended.
    call("POST /api/v1/operations/{id}/cancel", { path: { id: step.operation.id } }).catch(() => undefined);
  };
  const needsWord = command === "delete";
  const word = t("bulk.word");
  return (
    <Dialog title={t(`bulk.${command}.title`)} onClose={onClose}>
      <div className="space-y-4 p-4">
        <FilterWords filter={filter} />
        {step.at === "counting" && <p className="text-faint">{t("bulk.counting")}</p>}
        {step.at === "counted" && <Counted view={step.view} command={command} />}
        {step.at === "working" && <Progress operation={step.operation} />}
        {step.at === "stopped" && <p>{t("bulk.stopped", { count: step.done })}</p>}
        {step.at === "failed" && <Trouble error={step.error} />}
        {step.at === "counted" && needsWord && step.view.matching > 0 && (
          <label className="block">
            <span className="mb-1 block text-xs text-soft">{t("bulk.type", { word })}</span>
            <input className="field w-full" value={typed} onChange={(event) => setTyped(event.target.value)} />
          </label>
        )}
      </div>
      <footer className="flex justify-end gap-2 border-t px-4 py-3">
        {step.at === "working" ? (
          <button type="button" className="button" disabled={step.isStopping} onClick={stop}>
            {t("bulk.stop")}
          </button>
        ) : (
          <>
            <button type="button" className="button button-quiet" onClick={onClose}>
              {t("close")}
            </button>
            {step.at === "counted" && (
              <button
                type="button"
                className={`button ${needsWord ? "button-danger" : "button-strong"}`}
                disabled={step.view.matching === 0 || (needsWord && typed !== word)}
                onClick={start}
              >
                {t(`bulk.${command}.go`, { count: step.view.matching, shown: counted(step.view) })}
              </button>
            )}
          </>
        )}
      </footer>
    </Dialog>
  );
}

function counted(view: BulkView): string {
  return `${new Intl.NumberFormat().format(view.matching)}${view.more ? "+" : ""}`;
}

function Counted({ view, command }: { view: BulkView; command: ListCommand }) {
  const { t } = useWords();
  if (view.matching === 0) return <p>{t("bulk.none")}</p>;
  return (
    <>
      <p className="text-lg font-medium" data-testid="matching">
        {t("bulk.matching", { count: view.matching, shown: counted(view) })}
      </p>
      <p className="text-soft">{t(`bulk.${command}.means`)}</p>
    </>
  );
}

/** Asks how far it is until it has ended, and then says so. */
function useWatched(
  command: ListCommand,
  step: Step,
  setStep: Dispatch<SetStateAction<Step>>,
  onClose: () => void,
): void {
  const client = useQueryClient();
  const id = step.at === "working" ? step.operation.id : undefined;
  // biome-ignore lint/correctness/useExhaustiveDependencies: one watch for one operation
  useEffect(() => {
    if (!id) return;
    let isOver = false;
    const look = async () => {
      const now = await call("GET /api/v1/operations/{id}", { path: { id } });
      if (isOver) return;
      if (now.state === "running") {
        setStep((before) => (before.at === "working" ? { ...before, operation: now } : before));
        return;
      }
      isOver = true;
      clearInterval(timer);
      client.invalidateQueries();
      if (now.state === "done") {
        toasts.push({ tone: "good", text: `bulk.${command}.done`, values: { count: now.done } });
        onClose();
      } else if (now.state === "failed") {
        setStep({ at: "failed", error: new Error(now.error ?? now.state) });
      } else {
        setStep({ at: "stopped", done: now.done });
      }
    };
    // A server that does not answer for a moment goes on meanwhile.
    const timer = setInterval(() => look().catch(tellTrouble), ASK_MS);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, [id]);
}

function Progress({ operation }: { operation: OperationView }) {
  const { t } = useWords();
  const { matching, more, seen, done } = operation;
  // Of more than were counted, nobody knows which part this is.
  const known = more ? {} : { value: seen, max: matching };
  return (
    <div>
      <p className="mb-2">{more ? t("bulk.sofar", { count: done }) : t("bulk.working", { count: matching, done })}</p>
      <progress className="h-1.5 w-full" {...known} aria-label={t("bulk.progress")} />
      <p className="mt-2 text-xs text-faint">{t("bulk.leave")}</p>
    </div>
  );
}

function FilterWords({ filter }: { filter: JobFilter }) {
  const parts = Object.entries(filter).filter(([, value]) => value);
  return (
    <p className="flex flex-wrap gap-1.5">
      {parts.map(([field, value]) => (
        <span key={field} className="rounded border border-line-strong px-1.5 py-0.5 font-mono text-2xs">
          {field}: {String(value)}
        </span>
      ))}
    </p>
  );
}
