// Filters that live in the URL: what is looked at can be sent to somebody else, and the back button works.
import { useLocation, useSearch } from "wouter";
import type { JobFilter } from "./api/queries";

export const FIELDS = [
  "state",
  "kind",
  "queue",
  "destination",
  "key",
  "label",
  "group",
  "parent",
  "from",
  "until",
] as const;
export type Field = (typeof FIELDS)[number];

export function readFilter(search: string): { filter: JobFilter; cursor: string | undefined } {
  const given = new URLSearchParams(search);
  const entries = FIELDS.map((field) => [field, given.get(field) ?? ""] as const).filter(([, value]) => value !== "");
  return { filter: Object.fromEntries(entries), cursor: given.get("cursor") ?? undefined };
}

export function writeFilter(filter: JobFilter, cursor?: string): string {
  const entries = FIELDS.map((field) => [field, filter[field] ?? ""] as [string, string]).filter(
    ([, value]) => value !== "",
  );
  if (cursor) entries.push(["cursor", cursor]);
  const text = new URLSearchParams(entries).toString();
  return text ? `?${text}` : "";
}

export function useFilter() {
  const search = useSearch();
  const [path, go] = useLocation();
  const { filter, cursor } = readFilter(search);
  const change = (fields: Partial<Record<Field, string>>) => go(path + writeFilter({ ...filter, ...fields }));
  const turn = (to: string | undefined) => go(path + writeFilter(filter, to));
  const clear = () => go(path);
  return { filter, cursor, change, turn, clear, isEmpty: Object.keys(filter).length === 0 };
}

/** One value of the URL's query. */
export function useParam(name: string): [string, (value: string) => void] {
  const search = useSearch();
  const [path, go] = useLocation();
  const value = new URLSearchParams(search).get(name) ?? "";
  const set = (to: string) => {
    const next = new URLSearchParams(search);
    if (to) next.set(name, to);
    else next.delete(name);
    const text = next.toString();
    go(path + (text ? `?${text}` : ""));
  };
  return [value, set];
}
