import assert from "node:assert/strict";
import { test } from "node:test";
import { happeningsOf } from "../src/core/happenings";
import type { JobEvent } from "../src/core/job";

function event(kind: string, replica = ""): JobEvent {
  return { id: "", time: "2026-01-31T12:00:00Z", attempt: 1, kind, state: "", replica, text: "", actor: "" };
}

test("an exit is a loss where the replica is started again, and else a leave", () => {
  const events = [event("exited", "trainer-0"), event("exited", "trainer-1"), event("restarted", "trainer-1"), event("registered", "trainer-1")];
  assert.deepEqual(happeningsOf(events), ["left", "killed", "restarted", "joined"]);
});

test("a rehearsal is announced, and then kills", () => {
  assert.deepEqual(happeningsOf([event("rehearsal"), event("rehearsal", "trainer-0")]), ["rehearsal", "killed"]);
});

test("events of the platform's own processes have a label of their own", () => {
  assert.deepEqual(happeningsOf(["recovery", "store", "member", "warning"].map((kind) => event(kind, "master-0"))), ["recovered", "store", "member", "warning"]);
});

test("changes of state and unknown kinds have none", () => {
  assert.deepEqual(happeningsOf([event("state"), event("weather")]), [null, null]);
});
