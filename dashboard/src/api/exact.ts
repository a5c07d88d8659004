// JSON with numbers as they were written. JavaScript rounds 9007199254740993 to its neighbour; an operator who compares
// ids must not be shown another one.

/** A number that JavaScript would change. */
export class ExactNumber {
  constructor(readonly text: string) {}
  toString(): string {
    return this.text;
  }
}

export type Exact = null | boolean | number | string | ExactNumber | Exact[] | { [key: string]: Exact };

const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\]|\\.)*"/y;
const SPACE = /\s*/y;

/** Parses JSON that is known to be valid up to its numbers; throws a SyntaxError where it is not JSON. */
export function parseExact(text: string): Exact {
  let at = 0;
  const fail = (): never => {
    throw new SyntaxError(`not JSON at character ${at}`);
  };
  const take = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0];
    at += found?.length ?? 0;
    return found;
  };
  const skip = (wanted: string): boolean => {
    take(SPACE);
    if (!text.startsWith(wanted, at)) return false;
    at += wanted.length;
    take(SPACE);
    return true;
  };
  const string = (): string => JSON.parse(take(STRING) ?? fail());
  const list = (): Exact[] => {
    const items: Exact[] = [];
    while (!skip("]")) {
      if (items.length > 0 && !skip(",")) fail();
      items.push(value());
    }
    return items;
  };
  const object = (): { [key: string]: Exact } => {
    const entries: [string, Exact][] = [];
    while (!skip("}")) {
      if (entries.length > 0 && !skip(",")) fail();
      const key = string();
      if (!skip(":")) fail();
      entries.push([key, value()]);
    }
    return Object.fromEntries(entries);
  };
  const value = (): Exact => {
    take(SPACE);
    if (skip("{")) return object();
    if (skip("[")) return list();
    if (text[at] === '"') return string();
    if (skip("true")) return true;
    if (skip("false")) return false;
    if (skip("null")) return null;
    return number(take(NUMBER) ?? fail());
  };
  const whole = value();
  take(SPACE);
  if (at !== text.length) fail();
  return whole;
}

function number(text: string): number | ExactNumber {
  return String(Number(text)) === text ? Number(text) : new ExactNumber(text);
}

/** Writes it with every number as it was read. */
export function writeExact(value: Exact, indent = 2, depth = 0): string {
  const pad = (by: number) => (indent === 0 ? "" : `\n${" ".repeat(indent * by)}`);
  const all = (open: string, parts: string[], close: string) => {
    const inner = parts.map((part) => pad(depth + 1) + part).join(",");
    return parts.length === 0 ? open + close : open + inner + pad(depth) + close;
  };
  if (value instanceof ExactNumber) return value.text;
  if (Array.isArray(value)) {
    return all(
      "[",
      value.map((item) => writeExact(item, indent, depth + 1)),
      "]",
    );
  }
  if (value !== null && typeof value === "object") {
    const colon = indent === 0 ? ":" : ": ";
    const parts = Object.entries(value).map(([key, item]) => {
      return JSON.stringify(key) + colon + writeExact(item, indent, depth + 1);
    });
    return all("{", parts, "}");
  }
  return JSON.stringify(value);
}
