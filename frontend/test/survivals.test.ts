import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobEvent } from "../src/core/job";
import { survivals } from "../src/core/survivals";

function event(kind: string, replica: string, text: string, attempt = 1): JobEvent {
  return { id: "", time: "2026-01-31T12:00:00Z", attempt, kind, state: "", replica, text, actor: "" };
}

function texts(events: JobEvent[]): string[] {
  return survivals(events, 1).map(({ text, back }) => `${back ? "back" : "away"}: ${text}`);
}

test("a kill is listed with its recovery once the replica is back, the newest first", () => {
  const events = [
    event("rehearsal", "", "ada rehearses"),
    event("rehearsal", "trainer-0", "killed 1"),
    event("exited", "trainer-0", "ended"),
    event("registered", "trainer-1", "has registered"),
    event("registered", "trainer-0", "back 1"),
    event("rehearsal", "trainer-0", "killed 2"),
  ];
  assert.deepEqual(texts(events), ["away: killed 2", "back: back 1"]);
});

test("who is killed again before it is back was not back", () => {
  assert.deepEqual(texts([event("rehearsal", "master-0", "killed 1"), event("rehearsal", "master-0", "killed 2"), event("registered", "master-0", "back 2")]), [
    "back: back 2",
    "away: killed 1",
  ]);
});

test("kills of other attempts do not count", () => {
  assert.deepEqual(texts([event("rehearsal", "trainer-0", "killed", 2)]), []);
});
