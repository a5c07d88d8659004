// What is kept from eyes that look over a shoulder: values whose names say that they are secret. They are hidden until
// asked for, and an editor holds places for them that are filled in again when it is left.
import { type Exact, writeExact } from "./api/exact";

const SECRET =
  /pass(word|wd|phrase)?$|secret|token|api[-_]?key|authorization|cookie|credential|private[-_]?key|signature/i;

export function isSecret(name: string): boolean {
  return SECRET.test(name);
}

const place = (index: number) => `«hidden ${index + 1}»`;

/** The text to edit, and what belongs into its places. */
export function hideSecrets(value: Exact): { text: string; hidden: Exact[] } {
  const hidden: Exact[] = [];
  const walk = (part: Exact, name: string): Exact => {
    const isLeaf = part === null || typeof part !== "object" || "text" in part;
    if (isLeaf && part !== null && isSecret(name)) {
      hidden.push(part);
      return place(hidden.length - 1);
    }
    if (Array.isArray(part)) return part.map((item) => walk(item, name));
    if (isLeaf) return part;
    return Object.fromEntries(
      Object.entries(part as { [key: string]: Exact }).map(([key, item]) => [key, walk(item, key)]),
    );
  };
  return { text: writeExact(walk(value, "")), hidden };
}

/** The text with its secrets back in their places. */
export function showSecrets(text: string, hidden: readonly Exact[]): string {
  return text.replace(/"«hidden (\d+)»"/g, (whole, number: string) => {
    const value = hidden[Number(number) - 1];
    return value === undefined ? whole : writeExact(value, 0);
  });
}
