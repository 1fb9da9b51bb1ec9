import assert from "node:assert/strict";
import { test } from "node:test";
import { backoff, Cursor } from "../src/core/cursor";

const entries = (...seqs: number[]) => seqs.map((seq) => ({ seq }));

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
  const got: number[] = [];
  for (let at = 1; at <= 200; at += 7) {
    const from = Math.max(1, at - (at % 5));
    const chunk = entries(...Array.from({ length: at + 7 - from }, (_, i) => from + i));
    got.push(...cursor.take(chunk).map((entry) => entry.seq));
  }
  assert.deepEqual(got, Array.from({ length: got.length }, (_, i) => i + 1));
});

test("waits double up to half a minute, with jitter on both sides", () => {
  assert.equal(backoff(1, 0.5), 500);
  assert.equal(backoff(3, 0.5), 2000);
  assert.equal(backoff(50, 0.5), 30_000);
  assert.equal(backoff(1, 0), 350);
  assert.equal(backoff(1, 1), 650);
});
