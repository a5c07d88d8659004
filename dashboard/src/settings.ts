// What a person has chosen for this browser: theme, language, and whether to watch live. Kept in the browser only.
import { useSyncExternalStore } from "react";

export type Theme = "system" | "dark" | "light";
export type Language = "en" | "zh-TW";
export interface Settings {
  theme: Theme;
  /** None: as the browser says. */
  language?: Language;
}

const KEY = "redrive";
const listeners = new Set<() => void>();
let settings = read();

function read(): Settings {
  try {
    const { theme, language } = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Settings>;
    return {
      theme: theme === "dark" || theme === "light" ? theme : "system",
      ...(language === "en" || language === "zh-TW" ? { language } : {}),
    };
  } catch {
    return { theme: "system" };
  }
}

export function choose(change: Partial<Settings>): void {
  settings = { ...settings, ...change };
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    // A browser that keeps nothing still shows what was chosen.
  }
  applyTheme();
  for (const listener of listeners) listener();
}

export function applyTheme(): void {
  if (settings.theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = settings.theme;
}

export function useSettings(): Settings {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => settings,
  );
}

/** The language that was chosen; else the first of the browser's that there is; else English. */
export function languageOf(chosen: Language | undefined, browser: readonly string[]): Language {
  if (chosen) return chosen;
  for (const one of browser) {
    if (/^zh\b/i.test(one)) return "zh-TW";
    if (/^en\b/i.test(one)) return "en";
  }
  return "en";
}
