// The keyboard. Rows are marked `data-row`, with where Enter leads; what a key does in a row is the button in it that is
// marked with the key. A key therefore never does what could not be clicked.

const isTyping = (element: Element | null) =>
  element instanceof HTMLElement &&
  (element.matches("input:not([type=checkbox]), textarea, select") || element.isContentEditable);

export interface Keys {
  palette: () => void;
  help: () => void;
  pause: () => void;
  go: (to: string) => void;
}

const pages: Record<string, string> = {
  o: "/",
  t: "/retries",
  j: "/jobs",
  e: "/errors",
  d: "/dead",
  q: "/queues",
  n: "/destinations",
  p: "/policies",
  a: "/activity",
};

/** Answers keys until it is told to stop. */
export function listenToKeys(keys: Keys): () => void {
  let isGoing = false;
  const pressed = (event: KeyboardEvent) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      keys.palette();
      return;
    }
    if (event.metaKey || event.ctrlKey || event.altKey || isTyping(document.activeElement)) return;
    if (document.querySelector("dialog[open]")) return;
    if (isGoing) {
      isGoing = false;
      const to = pages[event.key];
      if (to) keys.go(to);
      return;
    }
    if (act(event.key, keys, () => (isGoing = true))) event.preventDefault();
  };
  document.addEventListener("keydown", pressed);
  return () => document.removeEventListener("keydown", pressed);
}

function act(key: string, keys: Keys, going: () => void): boolean {
  switch (key) {
    case "?":
      keys.help();
      return true;
    case "/": {
      const field = document.querySelector<HTMLElement>("[data-search]");
      if (field) field.focus();
      else keys.palette();
      return true;
    }
    case "g":
      going();
      return true;
    case "j":
      return walk(1);
    case "k":
      return walk(-1);
    case "r":
    case "c":
    case "x":
    case "e":
      return press(key);
    case "p":
      if (!press("p")) keys.pause();
      return true;
    case "Enter":
      return open(keys);
    default:
      return false;
  }
}

function rowOf(element: Element | null): HTMLElement | null {
  return element?.closest<HTMLElement>("[data-row]") ?? null;
}

function walk(by: 1 | -1): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const row = rowOf(document.activeElement);
  const at = row ? rows.indexOf(row) : -1;
  const next = rows[row ? at + by : by === 1 ? 0 : rows.length - 1];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
  return next !== undefined;
}

/** In the row that has the focus; on a page about one job, in that job's. */
function press(key: string): boolean {
  const row = rowOf(document.activeElement);
  const place: ParentNode = row ?? document.querySelector("main") ?? document;
  const all = place.querySelectorAll<HTMLElement>(`[data-key="${key}"]`);
  if (!row && all.length !== 1) return false;
  all[0]?.click();
  return all.length > 0;
}

function open(keys: Keys): boolean {
  const row = document.activeElement;
  if (!(row instanceof HTMLElement) || row.dataset.row === undefined || row instanceof HTMLButtonElement) return false;
  if (row.dataset.row) keys.go(row.dataset.row);
  else row.querySelector<HTMLElement>("[data-key=Enter]")?.click();
  return true;
}
