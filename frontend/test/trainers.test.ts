import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobEvent } from "../src/core/job";
import { trainersOverTime } from "../src/core/trainers";

function event(second: number, kind: string, replica: string, attempt = 1): JobEvent {
  return { id: "", time: `2026-01-31T12:00:0${second}Z`, attempt, kind, state: "", replica, text: "", actor: "" };
}

function counts(events: JobEvent[], attempt = 1): number[] {
  return trainersOverTime(events, attempt).map(({ trainers }) => trainers);
}

test("trainers count from when they register until they end", () => {
  const events = [event(0, "registered", "trainer-0"), event(1, "registered", "trainer-1"), event(2, "exited", "trainer-1")];
  assert.deepEqual(counts(events), [1, 2, 1]);
  assert.equal(trainersOverTime(events, 1)[1]?.at, Date.UTC(2026, 0, 31, 12, 0, 1) / 1000);
});

test("a trainer that is reported twice counts once, and one that restarts is absent meanwhile", () => {
  const events = [
    event(0, "registered", "trainer-0"),
    event(1, "registered", "trainer-0"),
    event(2, "exited", "trainer-0"),
    event(3, "restarted", "trainer-0"),
    event(4, "registered", "trainer-0"),
  ];
  assert.deepEqual(counts(events), [1, 0, 1]);
});

test("other roles and other attempts do not count", () => {
  assert.deepEqual(counts([event(0, "registered", "master-0"), event(1, "registered", "trainer-0", 2), event(2, "scaled", "")]), []);
});
