import assert from "node:assert/strict";
import { test } from "node:test";
import { type Series } from "../src/core/buckets";
import { stepAfter } from "../src/core/marks";

function counted(x: number[], count: number[]): Series {
  const none = x.map(() => null);
  return { x, min: none, max: none, last: none, count };
}

test("an event stands at the first step that was reported after it", () => {
  const byTime = counted([100, 101, 102, 103], [2, 2, 2, 3]);
  const bySteps = counted([1, 2, 3, 4], [2, 2, 2, 3]);
  assert.equal(stepAfter(101.5, byTime, bySteps), 3);
  assert.equal(stepAfter(99, byTime, bySteps), 1);
});

test("an event after the last report has no step yet", () => {
  assert.equal(stepAfter(200, counted([100], [4]), counted([1, 2], [2, 2])), null);
  assert.equal(stepAfter(200, counted([], []), counted([], [])), null);
});
