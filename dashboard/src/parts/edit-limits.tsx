// What a destination, or all that match, may be asked to bear: a form, checked by the server, which names every mistake.
import { type FormEvent, useState } from "react";
import { useLimit } from "../api/actions";
import type { LimitsForm, LimitsView } from "../api/schema";
import { type Key, useWords } from "../i18n";
import { Dialog } from "./dialog";

type Field = keyof LimitsView;

const fields: { field: Field; name: Key; hint: string; isNumber?: boolean }[] = [
  { field: "rate", name: "limits.rate", hint: "10/s" },
  { field: "burst", name: "limits.burst", hint: "1", isNumber: true },
  { field: "minGap", name: "limits.gap", hint: "5s" },
  { field: "concurrency", name: "limits.concurrency", hint: "4", isNumber: true },
  { field: "breaker", name: "limits.breaker", hint: "10", isNumber: true },
  { field: "retryBudget", name: "limits.budget", hint: "20", isNumber: true },
  { field: "retryAfterMax", name: "limits.after", hint: "1d" },
];

export function EditLimits(props: { pattern?: string; limits?: LimitsView; onClose: () => void }) {
  const { t } = useWords();
  const [pattern, setPattern] = useState(props.pattern ?? "");
  const [values, setValues] = useState<Record<string, string>>(() => {
    const given = fields.map(({ field }) => [field, props.limits?.[field]] as const);
    return Object.fromEntries(given.map(([field, value]) => [field, value == null ? "" : String(value)]));
  });
  const limit = useLimit();
  const save = (event: FormEvent) => {
    event.preventDefault();
    limit.mutate({ pattern: pattern.trim(), limits: formOf(values) }, { onSuccess: props.onClose });
  };
  return (
    <Dialog title={t("limits.edit.title")} onClose={props.onClose}>
      <form onSubmit={save}>
        <div className="grid gap-3 p-4 sm:grid-cols-2">
          <label className="block sm:col-span-2">
            <span className="label mb-1 block">{t("limits.pattern")}</span>
            <input
              data-focus
              required
              className="field w-full font-mono"
              placeholder="*.example.org"
              readOnly={props.pattern !== undefined}
              value={pattern}
              onChange={(event) => setPattern(event.target.value)}
            />
          </label>
          {fields.map(({ field, name, hint, isNumber }) => (
            <label key={field} className="block">
              <span className="label mb-1 block">{t(name)}</span>
              <input
                className="field w-full font-mono"
                inputMode={isNumber ? "numeric" : "text"}
                pattern={isNumber ? "[0-9]*" : undefined}
                placeholder={hint}
                value={values[field] ?? ""}
                onChange={(event) => setValues({ ...values, [field]: event.target.value })}
              />
            </label>
          ))}
          <p className="text-xs text-faint sm:col-span-2">{t("limits.empty")}</p>
        </div>
        <footer className="flex justify-end gap-2 border-t px-4 py-3">
          <button type="button" className="button button-quiet" onClick={props.onClose}>
            {t("close")}
          </button>
          <button type="submit" className="button button-strong" disabled={limit.isPending}>
            {t("limits.save")}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** What was filled in; what was not is left as usual. */
function formOf(values: Record<string, string>): LimitsForm {
  const filled = fields
    .map(({ field, isNumber }) => [field, (values[field] ?? "").trim(), isNumber] as const)
    .filter(([, text]) => text !== "");
  return Object.fromEntries(filled.map(([field, text, isNumber]) => [field, isNumber ? Number(text) : text]));
}
