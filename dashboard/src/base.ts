// Where the dashboard is mounted. Its script lies in `assets/` below that place when built, and in `src/` when developed.

export function baseOf(script: string): string {
  const { protocol, pathname } = new URL("..", script);
  // A test runs from a file, and has no mount.
  return protocol === "file:" ? "" : pathname.replace(/\/$/, "");
}

export const base = baseOf(import.meta.url);
