import assert from "node:assert/strict";
import { test } from "node:test";

import { inOrder } from "../src/core/metric-names";

test("the parts of a step come after the script's own metrics", () => {
  assert.deepEqual(inOrder(["step/wait", "accuracy", "step/read", "zeta", "cost"]), ["cost", "accuracy", "zeta", "step/read", "step/wait"]);
});

test("reports on long steps are no curves", () => {
  assert.deepEqual(inOrder(["step/open/wait", "step/paused", "cost", "step/still"]), ["cost"]);
});
