// What happens, as it happens: one stream of events for the whole page, with a state that can be seen. When the stream
// breaks the browser comes back by itself; when it cannot, pages ask again every second or two until it can.
import { base } from "../base";
import { serverClock } from "../clock";
import type { JobEvent } from "./board";

export type LiveState = "connecting" | "live" | "paused" | "reconnecting" | "polling";

/** Refusals in a row after which asking takes the place of listening. */
const TRIES_BEFORE_POLLING = 3;
/** Events are handed on together, this often at most. */
const HAND_ON_MS = 200;
/** When the stream cannot be had, it is tried again after so long. */
const AGAIN_MS = [500, 1_000, 2_000, 5_000];
/** Of a burst, so many are handed on; the lists that are asked for afterwards have the rest. */
const KEPT = 2_000;

/** What somebody is to be told, beyond single jobs. */
export interface LiveNotice {
  what: string;
  message: string;
}

type Hearer = (events: readonly JobEvent[], more: number) => void;
type Source = Pick<EventSource, "close" | "addEventListener" | "readyState">;

export class Live {
  #state: LiveState = "connecting";
  #source: Source | undefined;
  #failures = 0;
  #again: ReturnType<typeof setTimeout> | undefined;
  #handOn: ReturnType<typeof setTimeout> | undefined;
  #events: JobEvent[] = [];
  #more = 0;
  readonly #watchers = new Set<() => void>();
  readonly #hearers = new Set<Hearer>();
  readonly #noticeHearers = new Set<(notice: LiveNotice) => void>();
  readonly #open: (url: string) => Source;

  constructor(open: (url: string) => Source = (url) => new EventSource(url)) {
    this.#open = open;
  }

  get state(): LiveState {
    return this.#state;
  }

  /** Told when the state changes. */
  readonly watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };

  /** Told what has happened. `more` says that there was more than was told. */
  hear(hearer: Hearer): () => void {
    this.#hearers.add(hearer);
    return () => this.#hearers.delete(hearer);
  }

  hearNotices(hearer: (notice: LiveNotice) => void): () => void {
    this.#noticeHearers.add(hearer);
    return () => this.#noticeHearers.delete(hearer);
  }

  start(): void {
    if (this.#source || this.#state === "paused") return;
    clearTimeout(this.#again);
    const source = this.#open(`${base}/api/v1/events`);
    this.#source = source;
    source.addEventListener("open", () => {
      const wasAway = this.#state === "reconnecting" || this.#state === "polling";
      this.#failures = 0;
      this.#become("live");
      // Whatever happened meanwhile is in the lists.
      if (wasAway) this.#told([], 1);
    });
    source.addEventListener("error", () => this.#broken(source));
    source.addEventListener("snapshot", (message) => this.#snapshot(message as MessageEvent<string>));
    source.addEventListener("notice", (message) => {
      const notice = JSON.parse((message as MessageEvent<string>).data) as LiveNotice;
      for (const hearer of this.#noticeHearers) hearer(notice);
    });
    // What became of a destination is in its list, and in what its jobs wait for.
    source.addEventListener("destination", () => this.#told([], 1));
    source.addEventListener("jobs", (message) => this.#jobs(message as MessageEvent<string>));
  }

  stop(): void {
    clearTimeout(this.#again);
    clearTimeout(this.#handOn);
    this.#handOn = undefined;
    this.#source?.close();
    this.#source = undefined;
  }

  toggle(): void {
    if (this.#state === "paused") {
      this.#become("connecting");
      this.start();
      this.#told([], 1);
    } else {
      this.stop();
      this.#become("paused");
    }
  }

  #become(state: LiveState): void {
    if (this.#state === state) return;
    this.#state = state;
    for (const watcher of this.#watchers) watcher();
  }

  #broken(source: Source): void {
    if (source !== this.#source) return;
    this.#failures += 1;
    this.#become(this.#failures >= TRIES_BEFORE_POLLING ? "polling" : "reconnecting");
    // The browser comes back after a lost connection, but not after a refusal.
    if (source.readyState !== 2) return;
    source.close();
    this.#source = undefined;
    const wait = AGAIN_MS[Math.min(this.#failures, AGAIN_MS.length) - 1];
    this.#again = setTimeout(() => this.start(), wait);
  }

  #snapshot(message: MessageEvent<string>): void {
    const { missed } = JSON.parse(message.data) as { missed?: boolean };
    this.#told([], missed ? 1 : 0);
  }

  #jobs(message: MessageEvent<string>): void {
    const batch = JSON.parse(message.data) as { jobs: JobEvent[]; more: number };
    const last = batch.jobs.at(-1);
    const now = Date.now();
    // An event is never older than what the server's clock shows when we hear of it.
    if (last) serverClock.hear(now, now, Date.parse(last.at), Number.POSITIVE_INFINITY);
    this.#told(batch.jobs, batch.more);
  }

  #told(jobs: JobEvent[], more: number): void {
    const room = Math.max(0, KEPT - this.#events.length);
    this.#events.push(...jobs.slice(0, room));
    this.#more += more + Math.max(0, jobs.length - room);
    this.#handOn ??= setTimeout(() => {
      this.#handOn = undefined;
      const events = this.#events;
      const rest = this.#more;
      this.#events = [];
      this.#more = 0;
      for (const hearer of [...this.#hearers]) hearer(events, rest);
    }, HAND_ON_MS);
  }
}

export const live = new Live();
