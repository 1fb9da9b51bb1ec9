import assert from "node:assert/strict";
import { test } from "node:test";
import type { Job, Replica } from "../src/core/job";
import { pserversOf, trainersOf } from "../src/core/staffing";

function job(facts: Partial<Job>, servers = 0): Job {
  const replicas = Array.from({ length: servers }, (_, index) => ({ name: `pserver-${index}`, role: "pserver", index }) as Replica);
  const spec = { roles: { trainer: { replicas: 2, min: 1, max: 4 }, pserver: { replicas: 1 } } };
  return { state: "RUNNING", trainers: null, pservers: null, replicas, spec, ...facts } as Job;
}

test("trainers are chosen between their bounds while the job runs", () => {
  assert.deepEqual(trainersOf(job({})), { desired: 2, min: 1, max: 4, note: "1 to 4" });
  assert.equal(trainersOf(job({ trainers: 3 }))?.desired, 3);
  assert.equal(trainersOf(job({ state: "QUEUED" })), null);
});

test("trainers whose number is fixed cannot be scaled", () => {
  assert.equal(trainersOf(job({ spec: { roles: { trainer: { replicas: 2, min: 2, max: 2 }, pserver: { replicas: 1 } } } })), null);
});

test("parameter servers are chosen for the next attempt, whatever runs now", () => {
  assert.equal(pserversOf(job({}, 1))?.note, "from the next attempt on");
  assert.equal(pserversOf(job({ pservers: 3 }, 1))?.note, "from the next attempt on; 1 now");
  assert.equal(pserversOf(job({ state: "FAILED", pservers: 3 }, 1))?.desired, 3);
});

test("a job without parameter servers is offered none", () => {
  const spec = { roles: { trainer: { replicas: 2, min: 2, max: 2 }, pserver: { replicas: 0 } } } as Job["spec"];
  assert.equal(pserversOf(job({ spec })), null);
});

test("a job that has succeeded has no next attempt", () => {
  assert.equal(pserversOf(job({ state: "SUCCEEDED" })), null);
});
