// test/cursor.test.ts
import assert from "node:assert/strict";
import { test } from "node:test";

// src/core/cursor.ts
var Cursor = class {
  constructor(after) {
    this.after = after;
  }
  after;
  /** The entries that are new, in order; moves the cursor behind them. `hi` also covers entries that were filtered out. */
  take(entries2, hi = 0) {
    const fresh = [];
    for (const entry of entries2) {
      if (entry.seq <= this.after) continue;
      this.after = entry.seq;
      fresh.push(entry);
    }
    this.after = Math.max(this.after, hi);
    return fresh;
  }
  skipTo(seq) {
    this.after = Math.max(this.after, seq);
  }
};
var FIRST_MS = 500;
var LONGEST_MS = 3e4;
var JITTER = 0.3;
function backoff(failures, random) {
  const base = Math.min(LONGEST_MS, FIRST_MS * 2 ** (Math.max(1, failures) - 1));
  return Math.round(base * (1 + JITTER * (2 * random - 1)));
}

// test/cursor.test.ts
var entries = (...seqs) => seqs.map((seq) => ({ seq }));
test("what was seen before a reconnect is not seen again", () => {
  const cursor = new Cursor(0);
  assert.deepEqual(cursor.take(entries(1, 2, 3)), entries(1, 2, 3));
  assert.deepEqual(cursor.take(entries(2, 3, 4)), entries(4));
  assert.equal(cursor.after, 4);
});
test("the cursor passes entries that were filtered out", () => {
  const cursor = new Cursor(10);
  assert.deepEqual(cursor.take([], 25), []);
  assert.equal(cursor.after, 25);
});
test("the cursor never goes back", () => {
  const cursor = new Cursor(10);
  cursor.skipTo(5);
  cursor.take(entries(1), 3);
  assert.equal(cursor.after, 10);
});
test("any way of cutting and repeating a stream gives each entry once, in order", () => {
  const cursor = new Cursor(0);
  const got = [];
  for (let at = 1; at <= 200; at += 7) {
    const from = Math.max(1, at - at % 5);
    const chunk = entries(...Array.from({ length: at + 7 - from }, (_, i) => from + i));
    got.push(...cursor.take(chunk).map((entry) => entry.seq));
  }
  assert.deepEqual(got, Array.from({ length: got.length }, (_, i) => i + 1));
});
test("waits double up to half a minute, with jitter on both sides", () => {
  assert.equal(backoff(1, 0.5), 500);
  assert.equal(backoff(3, 0.5), 2e3);
  assert.equal(backoff(50, 0.5), 3e4);
  assert.equal(backoff(1, 0), 350);
  assert.equal(backoff(1, 1), 650);
});
