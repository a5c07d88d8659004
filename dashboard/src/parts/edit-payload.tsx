// Changing a payload and trying again: secrets stay in their places, numbers stay as they are written, and the change is
// shown before it is made.
import { useMemo, useState } from "react";
import { useAction } from "../api/actions";
import { call } from "../api/client";
import { type Exact, parseExact } from "../api/exact";
import type { DetailView } from "../api/schema";
import { diffLines } from "../diff";
import { visible } from "../format";
import { useWords } from "../i18n";
import { hideSecrets, showSecrets } from "../secrets";
import { Dialog } from "./dialog";

async function editAndRetry(job: DetailView, payload: string): Promise<void> {
  const { id } = job;
  await call("PATCH /api/v1/jobs/{id}", { path: { id }, text: `{"payload":${payload}}` });
  const isOver = job.state === "dead" || job.state === "cancelled";
  if (isOver) await call("POST /api/v1/jobs/{id}/redrive", { path: { id } });
  else await call("POST /api/v1/jobs/{id}/retry", { path: { id } });
}

export function EditPayload({ job, onClose }: { job: DetailView; onClose: () => void }) {
  const { t } = useWords();
  // What is edited is what stood there when the editor was opened; the job may go on meanwhile.
  const [{ text: before, hidden }] = useState(() => hideSecrets(job.payload as Exact));
  const [text, setText] = useState(before);
  const problem = useMemo(() => problemOf(showSecrets(text, hidden)), [text, hidden]);
  const lines = useMemo(() => diffLines(before, text), [before, text]);
  const save = useAction(
    (payload: string) => editAndRetry(job, payload),
    () => ({ tone: "good", text: "toast.edited" }),
  );
  const isChanged = text !== before;
  return (
    <Dialog title={t("edit.title")} onClose={onClose} wide>
      <div className="grid gap-3 p-4 md:grid-cols-2">
        <label className="block min-w-0">
          <span className="label mb-1 block">{t("edit.payload")}</span>
          <textarea
            data-focus
            className="field h-72 w-full resize-y py-1.5 font-mono text-xs leading-5"
            spellCheck={false}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
          <span role="status" className="mt-1 block min-h-5 text-xs text-bad">
            {problem}
          </span>
        </label>
        <div className="min-w-0">
          <p className="label mb-1">{t("edit.change")}</p>
          <pre
            data-testid="diff"
            // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
            tabIndex={0}
            className="h-72 overflow-auto rounded border p-2 font-mono text-xs leading-5"
          >
            {lines.map((line, index) => (
              <div key={index} className={{ same: "text-faint", gone: "bg-bad-dim", new: "bg-good-dim" }[line.kind]}>
                {{ same: "  ", gone: "− ", new: "+ " }[line.kind]}
                {visible(line.text)}
              </div>
            ))}
          </pre>
          {hidden.length > 0 && <p className="mt-1 text-xs text-faint">{t("edit.hidden")}</p>}
        </div>
      </div>
      <footer className="flex justify-end gap-2 border-t px-4 py-3">
        <button type="button" className="button button-quiet" onClick={onClose}>
          {t("close")}
        </button>
        <button
          type="button"
          className="button button-strong"
          disabled={!isChanged || problem !== "" || save.isPending}
          onClick={() => save.mutate(showSecrets(text, hidden), { onSuccess: onClose })}
        >
          {t("edit.save")}
        </button>
      </footer>
    </Dialog>
  );
}

function problemOf(text: string): string {
  try {
    parseExact(text);
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}
