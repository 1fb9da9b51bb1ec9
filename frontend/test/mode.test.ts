import assert from "node:assert/strict";
import { test } from "node:test";
import { modeText, parseMode } from "../src/core/mode";

test("a mode comes apart into name and number, and together again", () => {
  assert.deepEqual(parseMode("m_of_n(2)"), { name: "m_of_n", number: "2" });
  assert.deepEqual(parseMode("sync"), { name: "sync", number: "" });
  for (const text of ["sync", "async", "ssp(0)", "outer(100)"]) assert.equal(modeText(parseMode(text)), text);
});

test("nonsense stays what it was, for the server to refuse", () => {
  assert.equal(modeText(parseMode("m_of_n(x)")), "m_of_n(x)");
});
