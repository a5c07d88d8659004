import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { onTick, ServerClock, TICK_MS } from "./clock";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test("many whole seconds together tell the offset to a fraction of one", () => {
  const clock = new ServerClock();
  const ahead = 600_000 + 337;
  for (let at = 0; at < 20_000; at += 730) {
    const server = at + ahead;
    const second = Math.floor(server / 1000) * 1000;
    clock.hear(at - 5, at + 5, second, second + 1000);
  }
  expect(Math.abs(clock.offset - ahead)).toBeLessThan(150);
});

test("one answer with the millisecond is enough for the time it took", () => {
  const clock = new ServerClock();
  clock.hear(0, 40, 600_030, 600_031);
  expect(Math.abs(clock.offset - 600_010)).toBeLessThanOrEqual(21);
});

test("one answer is enough for less than a second of error", () => {
  const clock = new ServerClock();
  clock.hear(0, 10, -600_000, -599_000);
  expect(Math.abs(clock.offset - -599_500)).toBeLessThan(1_000);
});

test("a clock that was set makes everything heard before worthless", () => {
  const clock = new ServerClock();
  clock.hear(0, 10, 0, 1000);
  clock.hear(1000, 1010, 3_601_000, 3_602_000);
  expect(clock.offset).toBeGreaterThan(3_599_000);
});

test("an event only says that the server is not behind it", () => {
  const clock = new ServerClock();
  clock.hear(1000, 1000, 1400, Number.POSITIVE_INFINITY);
  expect(clock.offset).toBe(400);
  clock.hear(1000, 1000, Number.NaN, Number.NaN);
  expect(clock.offset).toBe(400);
});

test("everybody listens to one timer, which ends with the last of them", () => {
  const heard: string[] = [];
  const stopOne = onTick(() => heard.push("one"));
  const stopTwo = onTick(() => heard.push("two"));
  expect(vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(TICK_MS);
  stopOne();
  vi.advanceTimersByTime(TICK_MS);
  stopTwo();
  expect(heard).toEqual(["one", "two", "two"]);
  expect(vi.getTimerCount()).toBe(0);
});
