import { expect, test } from "vitest";
import { ExactNumber, parseExact, writeExact } from "./exact";

test("numbers that JavaScript would round stay as they were written", () => {
  const text = '{"id":9007199254740993,"rate":1.10,"small":1e-400,"plain":17,"deep":[123456789012345678901234567890]}';
  const value = parseExact(text) as Record<string, unknown>;
  expect(value.id).toBeInstanceOf(ExactNumber);
  expect(String(value.id)).toBe("9007199254740993");
  expect(value.plain).toBe(17);
  expect(writeExact(value as never, 0)).toBe(text);
});

test("everything else is what JSON.parse says it is", () => {
  const value = { a: [], b: {}, c: 'q"\\\n\u2028é', d: [true, false, null, -1, 0.5], e: { f: [{ g: "" }] } };
  for (const indent of [0, 2]) expect(parseExact(JSON.stringify(value, undefined, indent))).toEqual(value);
  expect(writeExact(value, 2)).toBe(JSON.stringify(value, undefined, 2));
});

test("what is not JSON is refused", () => {
  for (const text of ["", "{", "[1,]", '{"a":1,}', "nul", "1 2", "{a:1}", "[1 2]", '"open']) {
    expect(() => parseExact(text), text).toThrow(SyntaxError);
  }
});

test("a key named __proto__ is a key", () => {
  expect(Object.keys(parseExact('{"__proto__":1}') as object)).toEqual(["__proto__"]);
});
