// Numbers, times and durations as they stand on the screen. All pure: what time it is comes in as an argument.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const two = (value: number) => String(value).padStart(2, "0");

/** What is left, in whole seconds rounded up: `4s`, `1:05`, `2:00:09`, `6d 04:00`. Empty when nothing is left. */
export function countdown(leftMs: number): string {
  if (leftMs <= 0) return "";
  const seconds = Math.ceil(leftMs / SECOND);
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}:${two(seconds % 60)}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours}:${two(minutes % 60)}:${two(seconds % 60)}`;
  return `${Math.floor(hours / 24)}d ${two(hours % 24)}:${two(minutes % 60)}`;
}

/** A duration in one or two units: `12 ms`, `4.2 s`, `3 m 20 s`, `2 h`, `7 d`. */
export function duration(ms: number): string {
  if (ms > 0 && ms < 1) return "< 1 ms";
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${trim(ms / SECOND)} s`;
  if (ms < MINUTE) return `${Math.round(ms / SECOND)} s`;
  if (ms < HOUR) return pair(ms, MINUTE, "m", SECOND, "s");
  if (ms < DAY) return pair(ms, HOUR, "h", MINUTE, "m");
  return pair(ms, DAY, "d", HOUR, "h");
}

const trim = (value: number) => value.toFixed(1).replace(/\.0$/, "");

function pair(ms: number, large: number, name: string, small: number, smallName: string): string {
  const first = Math.floor(ms / large);
  const second = Math.floor((ms % large) / small);
  return second === 0 ? `${first} ${name}` : `${first} ${name} ${second} ${smallName}`;
}

/** How long ago, in the language's own short words. */
export function ago(at: number, now: number, language: string): string {
  const seconds = Math.round((at - now) / SECOND);
  const words = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
  const size = Math.abs(seconds);
  if (size < 60) return words.format(seconds, "second");
  if (size < 3600) return words.format(Math.trunc(seconds / 60), "minute");
  if (size < 86_400) return words.format(Math.trunc(seconds / 3600), "hour");
  return words.format(Math.trunc(seconds / 86_400), "day");
}

/** `14:03:22`, and the day before it when that is another one. */
export function clockTime(at: number, now: number, language: string): string {
  const time = new Intl.DateTimeFormat(language, {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  });
  const day = new Intl.DateTimeFormat(language, { month: "short", day: "numeric" });
  const isToday = day.format(at) === day.format(now) && Math.abs(now - at) < 2 * DAY;
  return isToday ? time.format(at) : `${day.format(at)} ${time.format(at)}`;
}

export function wholeTime(at: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" }).format(at);
}

export function count(value: number, language: string): string {
  return new Intl.NumberFormat(language).format(value);
}

/** `1.2k`, `3.4M`: for axes and badges. */
export function shortCount(value: number): string {
  if (value < 1000) return String(value);
  if (value < 1_000_000) return `${trim(value / 1000)}k`;
  return `${trim(value / 1_000_000)}M`;
}

/** The part of an id that tells two jobs of a day apart: ids begin with the time, so it is their end. */
export function shortId(id: string): string {
  return id.length > 12 ? `…${id.slice(-8)}` : id;
}

const INSTANT = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g;

/** A sentence of the server's with its times as the clock on the wall shows them. */
export function localTimes(text: string, now: number, language: string): string {
  return text.replace(INSTANT, (time) => clockTime(Date.parse(time), now, language));
}

const UNSEEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ones to be seen
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Control and direction characters made visible, so that no text can act out what it says. */
export function visible(text: string): string {
  return text.replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
