// The server's time, and the one ticker that everything with a countdown listens to.
//
// The server says what time it is with every answer, to the millisecond, and in its events. Each such word bounds the
// difference to our clock from both sides: by no more than the answer took. The bounds of many words together leave a few
// milliseconds, and a browser whose clock is minutes off still counts down to the right moment.

export class ServerClock {
  #low = Number.NEGATIVE_INFINITY;
  #high = Number.POSITIVE_INFINITY;

  /** Between `sent` and `received` of our clock, the server's showed something from `from` up to `until`. */
  hear(sent: number, received: number, from: number, until: number): void {
    if (![sent, received, from].every(Number.isFinite)) return;
    const low = from - received;
    const high = until - sent;
    if (low > this.#high || high < this.#low) {
      // Somebody has set one of the clocks: what was known is worth nothing.
      this.#low = low;
      this.#high = high;
      return;
    }
    this.#low = Math.max(this.#low, low);
    this.#high = Math.min(this.#high, high);
  }

  /** How far the server's clock is ahead of ours. */
  get offset(): number {
    const known = [this.#low, this.#high].filter(Number.isFinite);
    return known.length === 0 ? 0 : known.reduce((sum, bound) => sum + bound, 0) / known.length;
  }

  now(): number {
    return Date.now() + this.offset;
  }
}

export const serverClock = new ServerClock();

/** How often listeners are told. */
export const TICK_MS = 100;
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

export function onTick(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    for (const each of [...listeners]) each();
  }, TICK_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}
