import assert from "node:assert/strict";
import { test } from "node:test";
import { saysNothing, useless, withoutUseless } from "../src/core/framework";

const FRAMEWORKS = {
  native: { together: false, servers: 1, may_have_servers: true },
  command: { together: false, servers: 1, may_have_servers: true },
  paddle: { together: true, servers: 0, may_have_servers: true },
  torch: { together: true, servers: 0, may_have_servers: false },
};
const OF_MASTER = ["mode", "elastic", "roles.trainer.max", "roles.trainer.min"];

test("every field says something to the platform's own runtime, and to a framework that nobody knows", () => {
  assert.deepEqual(useless({}, FRAMEWORKS), []);
  assert.deepEqual(useless({ framework: "" }, FRAMEWORKS), []);
  assert.deepEqual(useless({ framework: "tomorrow" }, FRAMEWORKS), []);
});

test("whose processes meet once has neither mode nor bounds", () => {
  assert.deepEqual(useless({ framework: "paddle" }, FRAMEWORKS), OF_MASTER);
  assert.ok(useless({ framework: "torch" }, FRAMEWORKS).includes("roles.pserver.replicas"));
});

test("a command has them while it has parameter servers", () => {
  assert.deepEqual(useless({ framework: "command" }, FRAMEWORKS), []);
  assert.deepEqual(useless({ framework: "command", roles: { pserver: { replicas: 0 } } }, FRAMEWORKS), OF_MASTER);
});

test("what says nothing any more goes, and nothing else", () => {
  const trainer = { replicas: 2, min: 1, max: 4, cpu: 1 };
  const spec = { framework: "torch", mode: "async", elastic: true, roles: { trainer, pserver: { replicas: 1 } } };
  assert.deepEqual(withoutUseless(spec, FRAMEWORKS), {
    framework: "torch",
    roles: { trainer: { replicas: 2, cpu: 1 }, pserver: {} },
  });
  const native = { framework: "native", mode: "async" };
  assert.equal(withoutUseless(native, FRAMEWORKS), native);
});

test("a field that says more than what counts anyhow is told from one that does not", () => {
  const spec = { mode: "sync", elastic: false, roles: { trainer: { replicas: 2, max: 2 }, pserver: { replicas: 0, cpu: 1 } } };
  for (const path of ["mode", "elastic", "roles.trainer.max", "roles.pserver.cpu"]) assert.ok(saysNothing(spec, path), path);
  assert.ok(saysNothing({}, "roles.trainer.max"));
  assert.ok(!saysNothing({ mode: "async" }, "mode"));
  assert.ok(!saysNothing({ elastic: true }, "elastic"));
  assert.ok(!saysNothing({ roles: { trainer: { replicas: 2, max: 3 } } }, "roles.trainer.max"));
  assert.ok(!saysNothing({ roles: { pserver: { replicas: 1 } } }, "roles.pserver.replicas"));
});
