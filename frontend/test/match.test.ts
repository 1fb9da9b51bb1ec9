import assert from "node:assert/strict";
import { test } from "node:test";
import { matcher } from "../src/core/match";

test("text is found wherever it stands, whatever its case", () => {
  assert.deepEqual(matcher("ab", false)("ab AB cab"), [[0, 2], [3, 5], [7, 9]]);
});

test("signs of expressions are plain text unless an expression is asked for", () => {
  assert.deepEqual(matcher("a.c", false)("abc a.c"), [[4, 7]]);
  assert.deepEqual(matcher("a.c", true)("abc a.c"), [[0, 3], [4, 7]]);
});

test("an expression distinguishes lower and upper case, as on the server", () => {
  assert.deepEqual(matcher("error", true)("Error"), []);
});

test("what matches nothing, nowhere, or cannot be read has no place", () => {
  for (const query of ["", "x*", "(", "(?P<name>a)"]) assert.deepEqual(matcher(query, true)("abc"), []);
});
