import assert from "node:assert/strict";
import { test } from "node:test";
import { boxes, foldedText, merged, towards, treeOf } from "../src/core/flame";

const STACKS = { "MainThread;main;read": 1, "MainThread;main;step": 3, "MainThread;main": 1 };

test("counts add up from the innermost function to the root", () => {
  const root = treeOf(STACKS);
  const main = root.children[0]?.children[0];
  assert.equal(root.count, 5);
  assert.deepEqual([main?.name, main?.count], ["main", 5]);
  assert.deepEqual(main?.children.map((node) => [node.name, node.count]), [["read", 1], ["step", 3]]);
});

test("several replicas are told apart by their names, and one is not", () => {
  const one = { replica: "trainer-0", stacks: { a: 1 } };
  assert.deepEqual({ ...merged([one]) }, { a: 1 });
  assert.deepEqual({ ...merged([one, { replica: "trainer-1", stacks: { a: 2 } }]) }, { "trainer-0;a": 1, "trainer-1;a": 2 });
});

test("a name such as __proto__ is a name", () => {
  assert.equal(treeOf(merged([{ replica: "trainer-0", stacks: JSON.parse('{"__proto__": 2}') }])).children[0]?.name, "__proto__");
});

test("callees share the width of their caller by their counts", () => {
  const found = boxes(treeOf(STACKS), 0).map(({ node, depth, left, width }) => [node.name, depth, left, width]);
  assert.deepEqual(found.sort((one, other) => Number(one[1]) - Number(other[1])), [
    ["", 0, 0, 1],
    ["MainThread", 1, 0, 1],
    ["main", 2, 0, 1],
    ["step", 3, 0.2, 0.6],
    ["read", 3, 0, 0.2],
  ]);
});

test("the chosen function takes the whole width, below its callers", () => {
  const step = treeOf(STACKS).children[0]?.children[0]?.children[1];
  assert.deepEqual(step && boxes(step, 0).map(({ node, width }) => [node.name, width]), [["", 1], ["MainThread", 1], ["main", 1], ["step", 1]]);
});

test("boxes that would be too narrow to see are left out", () => {
  assert.equal(boxes(treeOf({ a: 999, b: 1 }), 0.01).some(({ node }) => node.name === "b"), false);
});

test("arrow keys lead to caller, largest callee and neighbours", () => {
  const main = treeOf(STACKS).children[0]?.children[0];
  const step = main && towards(main, "ArrowDown");
  assert.equal(step?.name, "step");
  assert.equal(step && towards(step, "ArrowLeft")?.name, "read");
  assert.equal(step && towards(step, "ArrowRight"), null);
  assert.equal(step && towards(step, "ArrowUp")?.name, "main");
});

test("the folded text has one line for each stack", () => {
  assert.equal(foldedText({ "a;b": 2, c: 1 }), "a;b 2\nc 1\n");
});
