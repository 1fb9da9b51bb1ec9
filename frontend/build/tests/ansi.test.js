// test/ansi.test.ts
import assert from "node:assert/strict";
import { test } from "node:test";

// src/core/ansi.ts
var CONTROL = /\x1b\[([0-9;:?]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?|[\x00-\x08\x0b-\x1f\x7f]/g;
var FLAGS = { 1: "ansi-bold", 2: "ansi-dim", 3: "ansi-italic", 4: "ansi-underline" };
var UNFLAGS = {
  22: ["ansi-bold", "ansi-dim"],
  23: ["ansi-italic"],
  24: ["ansi-underline"]
};
function parseAnsi(line) {
  if (!/[\x00-\x08\x0b-\x1f\x7f]/.test(line)) return line ? [{ text: line, classes: [] }] : [];
  const style = { fg: null, bg: null, flags: /* @__PURE__ */ new Set() };
  const pieces = [];
  let at = 0;
  for (const found of line.matchAll(CONTROL)) {
    push(pieces, line.slice(at, found.index), style);
    at = found.index + found[0].length;
    if (found[2] === "m") apply(style, found[1] ?? "");
  }
  push(pieces, line.slice(at), style);
  return pieces;
}
function stripAnsi(line) {
  return line.replace(CONTROL, "");
}
function push(pieces, text, style) {
  if (text) pieces.push({ text, classes: classesOf(style) });
}
function classesOf({ fg, bg, flags }) {
  const classes = [...flags];
  if (fg !== null) classes.push(`ansi-fg-${fg}`);
  if (bg !== null) classes.push(`ansi-bg-${bg}`);
  return classes;
}
function apply(style, parameters) {
  const codes = parameters.split(/[;:]/).map(Number);
  for (let i = 0; i < codes.length; i += 1) {
    const code = codes[i] ?? 0;
    if (code === 38 || code === 48) i += extended(style, code, codes.slice(i + 1));
    else one(style, code);
  }
}
function extended(style, code, rest) {
  if (rest[0] === 5) {
    const colour = rest[1] ?? 0;
    style[code === 38 ? "fg" : "bg"] = colour < 16 ? colour : null;
    return 2;
  }
  return rest[0] === 2 ? 4 : 0;
}
function one(style, code) {
  if (code === 0) Object.assign(style, { fg: null, bg: null, flags: /* @__PURE__ */ new Set() });
  else if (FLAGS[code]) style.flags.add(FLAGS[code]);
  else if (UNFLAGS[code]) for (const flag of UNFLAGS[code]) style.flags.delete(flag);
  else if (code >= 30 && code <= 37) style.fg = code - 30;
  else if (code >= 90 && code <= 97) style.fg = code - 82;
  else if (code === 39) style.fg = null;
  else if (code >= 40 && code <= 47) style.bg = code - 40;
  else if (code >= 100 && code <= 107) style.bg = code - 92;
  else if (code === 49) style.bg = null;
}

// test/ansi.test.ts
test("plain text is one piece", () => {
  assert.deepEqual(parseAnsi("hello"), [{ text: "hello", classes: [] }]);
  assert.deepEqual(parseAnsi(""), []);
});
test("colours begin and end", () => {
  assert.deepEqual(parseAnsi("a \x1B[31mred\x1B[0m b"), [
    { text: "a ", classes: [] },
    { text: "red", classes: ["ansi-fg-1"] },
    { text: " b", classes: [] }
  ]);
});
test("bold, bright and background come together", () => {
  assert.deepEqual(parseAnsi("\x1B[1;92;44mx")[0]?.classes, ["ansi-bold", "ansi-fg-10", "ansi-bg-4"]);
});
test("the colours that we do not have are skipped with their parameters", () => {
  assert.deepEqual(parseAnsi("\x1B[38;5;9ma\x1B[38;2;1;31;1mb\x1B[38;5;200mc").map((piece) => piece.classes), [
    ["ansi-fg-9"],
    ["ansi-fg-9"],
    []
  ]);
});
test("titles, cursor movements and lone escapes vanish", () => {
  assert.equal(stripAnsi("\x1B]0;title\x07a\x1B[2Kb\x1B[1;1Hc\x1B(d\r"), "abcd".replace("d", "d"));
});
test("markup stays text", () => {
  assert.deepEqual(parseAnsi("<b>\x1B[1m<i>"), [
    { text: "<b>", classes: [] },
    { text: "<i>", classes: ["ansi-bold"] }
  ]);
});
