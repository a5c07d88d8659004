// The words on the screen, in the language that was chosen or that the browser asks for.
import { createContext, type ReactNode, useContext, useEffect, useMemo } from "react";
import { visible } from "./format";
import { type Language, languageOf, useSettings } from "./settings";
import { en } from "./strings/en";
import { zhTW } from "./strings/zh-TW";

export type Key = keyof typeof en;
export type Values = Record<string, string | number>;
/** A text, or one for each plural form of `count`. */
export type Entry = string | { one?: string; other: string };
export type Catalogue = Record<Key, Entry>;
export type Translate = (key: Key, values?: Values) => string;

const catalogues: Record<Language, Catalogue> = { en, "zh-TW": zhTW };

export function translate(language: Language, key: Key, values: Values = {}): string {
  const entry: Entry | undefined = catalogues[language][key];
  // A word of a newer server is better than no page.
  if (entry === undefined) return visible(key.slice(key.lastIndexOf(".") + 1));
  const text = typeof entry === "string" ? entry : form(entry, language, Number(values.count ?? 0));
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    if (value === undefined) return whole;
    return typeof value === "number" ? new Intl.NumberFormat(language).format(value) : value;
  });
}

function form(entry: { one?: string; other: string }, language: Language, count: number): string {
  const rule = new Intl.PluralRules(language).select(count);
  return rule === "one" ? (entry.one ?? entry.other) : entry.other;
}

const Words = createContext<{ t: Translate; language: Language }>({
  t: (key, values) => translate("en", key, values),
  language: "en",
});

export function LanguageProvider({ children }: { children: ReactNode }) {
  const language = languageOf(useSettings().language, navigator.languages ?? []);
  useEffect(() => {
    document.documentElement.lang = language;
  }, [language]);
  const words = useMemo(() => {
    const t: Translate = (key, values) => translate(language, key, values);
    return { t, language };
  }, [language]);
  return <Words value={words}>{children}</Words>;
}

export function useWords() {
  return useContext(Words);
}

const kinds: Record<string, Key> = {
  parse: "kind.parse",
  metadata_fetch: "kind.metadata_fetch",
  http: "kind.http",
  command: "kind.command",
  execution: "kind.execution",
};

/** The names of kinds that have one; any other is called what it is called. */
export function kindName(t: Translate, kind: string): string {
  const name = Object.hasOwn(kinds, kind) ? kinds[kind] : undefined;
  return name ? t(name) : visible(kind);
}

const reasons: Record<string, Key> = {
  exhausted: "gaveup.exhausted",
  permanent: "gaveup.permanent",
  expired: "gaveup.expired",
  crash_loop: "gaveup.crash_loop",
  corrupt: "gaveup.corrupt",
};

/** Why a job was given up; a reason that is not known here is called what it is called. */
export function reasonName(t: Translate, why: string): string {
  const name = Object.hasOwn(reasons, why) ? reasons[why] : undefined;
  return name ? t(name) : visible(why);
}

const RECOVERED = /^finished at run (\d+), after (\d+) failures?$/;
const DEAD = /^needs a person \((\w+)\) after run (\d+): (.*)$/s;

/** A line of the activity log in the reader's language, where it is one of the sentences that are told most. */
export function activityText(t: Translate, { what, message }: { what: string; message: string }): string {
  const [, finished, failures] = (what === "recovered" && RECOVERED.exec(message)) || [];
  if (finished) return t("activity.recovered", { run: finished, count: Number(failures) });
  // That it needs a person stands before it.
  const [, why, run, error] = (what === "dead" && DEAD.exec(message)) || [];
  if (why && run) return t("activity.dead", { why: reasonName(t, why), run, error: error ?? "" });
  return message;
}

export interface Named {
  kind: string;
  key?: string | null | undefined;
  destination?: string | null | undefined;
}

/** What a person would call a job: by its key if it has one, or by where it goes. */
export function jobName(t: Translate, { kind, key, destination }: Named): string {
  if (key) return `${kindName(t, kind)} ${visible(key)}`;
  if (destination) return t("kind.to", { kind: kindName(t, kind), destination: visible(destination) });
  return kindName(t, kind);
}
