// When to try again and when to stop: the policies that have a name, and what each would do, to the millisecond.
import { useState } from "react";
import { usePresets, usePreview } from "../api/queries";
import { useParam } from "../filters";
import { useWords } from "../i18n";
import { PageTitle, Panel, Skeleton, Trouble } from "../parts/basics";
import { Delays } from "../parts/charts";
import { OutagePanel } from "../parts/outage";
import { backoffText, type PolicyForm } from "../parts/retry-queue";

export function Policies() {
  const { t } = useWords();
  const presets = usePresets();
  const [name, choose] = useParam("policy");
  const [own, setOwn] = useState<string>();
  const chosen = presets.data?.find((preset) => preset.name === name) ?? presets.data?.[0];
  const written = own ?? (chosen ? JSON.stringify(chosen.policy, undefined, 2) : "");
  const policy = parsed(written);
  const preview = usePreview(policy);
  const pick = (preset: string) => {
    setOwn(undefined);
    choose(preset);
  };
  return (
    <div>
      <PageTitle title={t("nav.policies")} />
      <div className="grid items-start gap-4 lg:grid-cols-[18rem_1fr]">
        <Panel title={t("policy.presets")}>
          {presets.isLoading && <Skeleton rows={6} />}
          {presets.error && <Trouble error={presets.error} again={presets.refetch} />}
          <label className="block p-3.5 lg:hidden">
            <span className="sr-only">{t("policy.presets")}</span>
            <select
              className="field w-full"
              value={own === undefined ? (chosen?.name ?? "") : ""}
              onChange={(event) => pick(event.target.value)}
            >
              {own !== undefined && <option value="">{t("policy.own")}</option>}
              {presets.data?.map((preset) => (
                <option key={preset.name} value={preset.name}>
                  {`${preset.name}: ${preset.delays.slice(0, 6).join(" → ")}`}
                </option>
              ))}
            </select>
          </label>
          <div className="rows max-lg:hidden">
            {presets.data?.map((preset) => (
              <button
                key={preset.name}
                type="button"
                data-row=""
                aria-pressed={preset.name === chosen?.name && own === undefined}
                className="block w-full px-3.5 py-2 text-left hover:bg-hover aria-pressed:bg-hover"
                onClick={() => pick(preset.name)}
              >
                <span className="block font-medium">{preset.name}</span>
                <span className="cut block font-mono text-2xs text-faint">{preset.delays.slice(0, 6).join(" → ")}</span>
              </button>
            ))}
          </div>
        </Panel>
        <div className="min-w-0 space-y-4">
          <Panel
            title={own === undefined ? (chosen?.name ?? "") : t("policy.own")}
            tools={<span className="label">{backoffText((policy ?? {}) as PolicyForm)}</span>}
          >
            <div className="grid gap-4 p-3.5 xl:grid-cols-2">
              <div data-testid="preview" className="min-w-0">
                {preview.error && <Trouble error={preview.error} />}
                {preview.data && !preview.error && (
                  <>
                    <Delays delays={preview.data.delays} />
                    <p className="mt-2 text-xs text-faint">
                      {preview.data.retries == null
                        ? t("policy.endless")
                        : t("policy.lifetime", {
                            count: preview.data.retries,
                            lifetime: preview.data.delays.at(-1)?.after ?? "0s",
                          })}
                    </p>
                  </>
                )}
              </div>
              <label className="block min-w-0">
                <span className="label mb-1 block">{t("policy.try")}</span>
                <textarea
                  className="field h-80 w-full resize-y py-1.5 font-mono text-xs leading-5"
                  spellCheck={false}
                  value={written}
                  onChange={(event) => setOwn(event.target.value)}
                />
                <span role="status" className="mt-1 block min-h-5 text-xs text-bad">
                  {written !== "" && policy === undefined ? t("policy.notjson") : ""}
                </span>
              </label>
            </div>
          </Panel>
          <OutagePanel
            policy={own === undefined ? chosen?.policy : policy}
            name={own === undefined ? (chosen?.name ?? "") : t("policy.own")}
            waits={own !== undefined}
          />
        </div>
      </div>
    </div>
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
