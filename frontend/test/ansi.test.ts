import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAnsi, stripAnsi } from "../src/core/ansi";

test("plain text is one piece", () => {
  assert.deepEqual(parseAnsi("hello"), [{ text: "hello", classes: [] }]);
  assert.deepEqual(parseAnsi(""), []);
});

test("colours begin and end", () => {
  assert.deepEqual(parseAnsi("a \x1b[31mred\x1b[0m b"), [
    { text: "a ", classes: [] },
    { text: "red", classes: ["ansi-fg-1"] },
    { text: " b", classes: [] },
  ]);
});

test("bold, bright and background come together", () => {
  assert.deepEqual(parseAnsi("\x1b[1;92;44mx")[0]?.classes, ["ansi-bold", "ansi-fg-10", "ansi-bg-4"]);
});

test("the colours that we do not have are skipped with their parameters", () => {
  assert.deepEqual(parseAnsi("\x1b[38;5;9ma\x1b[38;2;1;31;1mb\x1b[38;5;200mc").map((piece) => piece.classes), [
    ["ansi-fg-9"],
    ["ansi-fg-9"],
    [],
  ]);
});

test("titles, cursor movements and lone escapes vanish", () => {
  assert.equal(stripAnsi("\x1b]0;title\x07a\x1b[2Kb\x1b[1;1Hc\x1b(d\r"), "abcd".replace("d", "d"));
});

test("markup stays text", () => {
  assert.deepEqual(parseAnsi("<b>\x1b[1m<i>"), [
    { text: "<b>", classes: [] },
    { text: "<i>", classes: ["ansi-bold"] },
  ]);
});
