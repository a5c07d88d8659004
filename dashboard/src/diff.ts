// What an edit changed, line by line: the longest common part stays, the rest is marked.

export interface Line {
  kind: "same" | "gone" | "new";
  text: string;
}

/** Beyond this many lines an edit is shown as all gone and all new: the table below would be too large. */
const LINES_MAX = 2_000;

export function diffLines(before: string, after: string): Line[] {
  const [old, now] = [before.split("\n"), after.split("\n")];
  if (old.length * now.length > LINES_MAX * LINES_MAX) {
    return [
      ...old.map((text) => ({ kind: "gone" as const, text })),
      ...now.map((text) => ({ kind: "new" as const, text })),
    ];
  }
  // common[i][j]: how many lines the rest from i and the rest from j have in common.
  const common = Array.from({ length: old.length + 1 }, () => new Uint32Array(now.length + 1));
  const at = (i: number, j: number) => common[i]?.[j] ?? 0;
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      const row = common[i] as Uint32Array;
      row[j] = old[i] === now[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push({ kind: "same", text: old[i] ?? "" });
      i += 1;
      j += 1;
    } else if (j >= now.length || (i < old.length && at(i + 1, j) >= at(i, j + 1))) {
      lines.push({ kind: "gone", text: old[i] ?? "" });
      i += 1;
    } else {
      lines.push({ kind: "new", text: now[j] ?? "" });
      j += 1;
    }
  }
  return lines;
}
