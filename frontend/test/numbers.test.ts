import assert from "node:assert/strict";
import { test } from "node:test";
import { ordinal } from "../src/core/numbers";

test("ordinals end as English wants it, and only there", () => {
  assert.deepEqual([1, 2, 3, 4, 11, 12, 22, 103].map((n) => ordinal(n, "en-GB")), ["1st", "2nd", "3rd", "4th", "11th", "12th", "22nd", "103rd"]);
  assert.equal(ordinal(2, "zh-hans"), "2");
});
