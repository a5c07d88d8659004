// Everything by its name: pages, settings, and any job by its id.
import { useMemo, useState } from "react";
import { live } from "../api/live";
import { useWords } from "../i18n";
import { isId } from "../pages/jobs";
import { choose } from "../settings";
import { Dialog } from "./dialog";
import { PAGES } from "./pages";

interface Choice {
  name: string;
  run: () => void;
}

export function Palette({ onClose, go }: { onClose: () => void; go: (to: string) => void }) {
  const { t } = useWords();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const choices = useMemo<Choice[]>(
    () => [
      ...PAGES.map((page) => ({ name: t(page.name), run: () => go(page.to) })),
      ...(["waiting", "running", "dead"] as const).map((state) => ({
        name: `${t("nav.jobs")}: ${t(`state.${state}`)}`,
        run: () => go(`/jobs?state=${state}`),
      })),
      { name: t("palette.pause"), run: () => live.toggle() },
      { name: t("settings.dark"), run: () => choose({ theme: "dark" }) },
      { name: t("settings.light"), run: () => choose({ theme: "light" }) },
      { name: t("settings.system"), run: () => choose({ theme: "system" }) },
      { name: "English", run: () => choose({ language: "en" }) },
      { name: "繁體中文", run: () => choose({ language: "zh-TW" }) },
    ],
    [t, go],
  );
  const wanted = text.trim();
  const found = matching(choices, wanted);
  if (wanted) {
    const to = isId(wanted) ? `/jobs/${wanted}` : `/jobs?key=${encodeURIComponent(wanted)}`;
    found.push({ name: t(isId(wanted) ? "palette.job" : "palette.key", { text: wanted }), run: () => go(to) });
  }
  const chosen = Math.min(at, found.length - 1);
  const run = (choice: Choice | undefined) => {
    choice?.run();
    onClose();
  };
  return (
    <Dialog title={t("palette.title")} onClose={onClose} bare>
      <input
        data-focus
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={`choice-${chosen}`}
        aria-label={t("palette.title")}
        placeholder={t("palette.hint")}
        className="w-full border-b bg-transparent px-4 py-3 text-sm outline-none placeholder:text-faint"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setAt(Math.min(found.length - 1, chosen + 1));
          else if (event.key === "ArrowUp") setAt(Math.max(0, chosen - 1));
          else if (event.key === "Enter") run(found[chosen]);
          else return;
          event.preventDefault();
        }}
      />
      <div id="palette-list" role="listbox" aria-label={t("palette.title")} className="max-h-80 overflow-auto p-1.5">
        {found.map((choice, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are those of the field above
          <div
            key={choice.name}
            id={`choice-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === chosen}
            className="cursor-pointer rounded px-2.5 py-1.5 aria-selected:bg-line"
            onPointerMove={() => setAt(index)}
            onClick={() => run(choice)}
          >
            {choice.name}
          </div>
        ))}
      </div>
    </Dialog>
  );
}

/** Those with the letters in order; whole words first. */
function matching(choices: readonly Choice[], text: string): Choice[] {
  const needle = text.toLowerCase();
  const has = (name: string) => {
    let from = 0;
    return [...needle].every((letter) => {
      from = name.indexOf(letter, from) + 1;
      return from > 0;
    });
  };
  const found = choices.filter((choice) => has(choice.name.toLowerCase()));
  const rank = (choice: Choice) => (choice.name.toLowerCase().includes(needle) ? 0 : 1);
  return found.sort((one, other) => rank(one) - rank(other));
}
