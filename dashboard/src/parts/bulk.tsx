// Doing something to everything that matches: first a count, then a word to confirm it, then how far it is, with a way to
// stop. The server does the work; closing the window does not undo what was done.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { call } from "../api/client";
import type { JobFilter } from "../api/queries";
import type { BulkCommand, BulkView } from "../api/schema";
import { useWords } from "../i18n";
import { toasts } from "../toasts";
import { Trouble } from "./basics";
import { Dialog } from "./dialog";

type Step =
  | { at: "counting" }
  | { at: "counted"; view: BulkView }
  | { at: "working"; of: number; done: number }
  | { at: "stopped"; done: number }
  | { at: "failed"; error: unknown };

export interface BulkPlan {
  command: BulkCommand;
  filter: JobFilter;
}

/** The states in which a command can be carried out: asked for with the filter, so that the count is of those. */
const fits: Record<BulkCommand, string[]> = {
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
  const client = useQueryClient();
  const filter = narrowed(plan);
  const { command } = plan;
  const [step, setStep] = useState<Step>({ at: "counting" });
  const [typed, setTyped] = useState("");
  const abort = useRef<AbortController>(undefined);
  const body = { command, filter };
  const key = JSON.stringify(body);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key is what the body says
  useEffect(() => {
    call("POST /api/v1/jobs/commands", { body: { ...body, dryRun: true } })
      .then((view) => setStep({ at: "counted", view }))
      .catch((error) => setStep({ at: "failed", error }));
  }, [key]);
  const isWorking = step.at === "working";
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key is what the body says
  useEffect(() => {
    if (!isWorking) return;
    // What still matches tells how far it is, for the commands that make a job stop matching.
    const timer = setInterval(async () => {
      const view = await call("POST /api/v1/jobs/commands", { body: { ...body, dryRun: true } }).catch(() => undefined);
      if (!view || view.more) return;
      setStep((now) => (now.at === "working" ? { ...now, done: Math.max(now.done, now.of - view.matching) } : now));
    }, 700);
    return () => clearInterval(timer);
  }, [isWorking, key]);
  const start = async (of: number) => {
    abort.current = new AbortController();
    setStep({ at: "working", of, done: 0 });
    try {
      const view = await call("POST /api/v1/jobs/commands", { body, signal: abort.current.signal });
      toasts.push({ tone: "good", text: `bulk.${command}.done`, values: { count: view.done ?? 0 } });
      onClose();
    } catch (error) {
      if (abort.current.signal.aborted)
        setStep((now) => ({ at: "stopped", done: now.at === "working" ? now.done : 0 }));
      else setStep({ at: "failed", error });
    } finally {
      client.invalidateQueries();
    }
  };
  const needsWord = command === "delete";
  const word = t("bulk.word");
  return (
    <Dialog title={t(`bulk.${command}.title`)} onClose={onClose}>
      <div className="space-y-4 p-4">
        <FilterWords filter={filter} />
        {step.at === "counting" && <p className="text-faint">{t("bulk.counting")}</p>}
        {step.at === "counted" && <Counted view={step.view} command={command} />}
        {step.at === "working" && <Progress of={step.of} done={step.done} />}
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
          <button type="button" className="button" onClick={() => abort.current?.abort()}>
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
                onClick={() => start(step.view.matching)}
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

function Counted({ view, command }: { view: BulkView; command: BulkCommand }) {
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

function Progress({ of, done }: { of: number; done: number }) {
  const { t } = useWords();
  return (
    <div>
      <p className="mb-2">{t("bulk.working", { count: of, done })}</p>
      <progress
        className="h-1.5 w-full"
        {...(done > 0 ? { value: done, max: of } : {})}
        aria-label={t("bulk.progress")}
      />
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
