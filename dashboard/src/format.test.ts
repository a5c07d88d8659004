import { expect, test } from "vitest";
import { ago, clockTime, countdown, duration, localTimes, shortCount, shortId, visible, wholeTime } from "./format";

test("a countdown is in whole seconds, rounded up, and empty at zero", () => {
  const cases: [number, string][] = [
    [4_000, "4s"],
    [3_001, "4s"],
    [1, "1s"],
    [0, ""],
    [-5, ""],
    [59_001, "1:00"],
    [65_000, "1:05"],
    [7_209_000, "2:00:09"],
    [7 * 86_400_000, "7d 00:00"],
  ];
  for (const [left, text] of cases) expect(countdown(left)).toBe(text);
});

test("times within a sentence are those of the clock on the wall", () => {
  const at = Date.parse("2026-11-16T14:27:09.308Z");
  const told = localTimes("it asked for a pause until 2026-11-16T14:27:09.308Z: held", at - 5_000, "en");
  expect(told).toBe(`it asked for a pause until ${clockTime(at, at, "en")}: held`);
  expect(localTimes("run 2026-11", at, "en")).toBe("run 2026-11");
});

test("a duration has at most two units", () => {
  expect([12, 4_200, 45_000, 200_000, 7_200_000, 8 * 86_400_000 + 3_600_000].map(duration)).toEqual([
    "12 ms",
    "4.2 s",
    "45 s",
    "3 m 20 s",
    "2 h",
    "8 d 1 h",
  ]);
});

test("times are told in the language of the reader", () => {
  const now = Date.UTC(2026, 10, 16, 12, 0, 0);
  expect(ago(now - 5_000, now, "en")).toBe("5 sec. ago");
  expect(ago(now - 3 * 3_600_000, now, "en")).toBe("3 hr. ago");
  expect(ago(now - 120_000, now, "zh-TW")).toContain("2");
  expect(clockTime(now - 3 * 86_400_000, now, "en")).toContain("Nov 13");
  expect(clockTime(now, now, "en")).toMatch(/^\d\d:\d\d:\d\d$/);
  expect(wholeTime(now, "en")).toContain("2026");
});

test("numbers and ids are short where there is little room", () => {
  expect([999, 1_200, 3_400_000].map(shortCount)).toEqual(["999", "1.2k", "3.4M"]);
  expect(shortId("01a1e333-4a4a-7000-bb8b-cbbcfc87c940")).toBe("…fc87c940");
  expect(shortId("short")).toBe("short");
});

test("a text cannot act out what it says", () => {
  expect(visible("a\u202eb\u0000c\u200bd\n")).toBe("a\\u202eb\\u0000c\\u200bd\n");
});
