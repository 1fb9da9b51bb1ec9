import assert from "node:assert/strict";
import { test } from "node:test";
import type { CellModel } from "../notebook/jupyterlab";
import { Applier, joined, type Operation, type Output } from "../notebook/operations";

class Cell implements CellModel {
  readonly type = "code";
  executionCount: number | null = null;
  executionState = "idle";
  trusted = false;
  shown: Output[] = [];
  cleared: boolean[] = [];
  readonly outputs: CellModel["outputs"];

  constructor(readonly id: string) {
    const cell = this;
    this.outputs = {
      get length() {
        return cell.shown.length;
      },
      add: (output) => cell.shown.push(output as Output),
      set: (index, output) => void (cell.shown[index] = output as Output),
      clear: (wait = false) => {
        cell.cleared.push(wait);
        cell.shown = [];
      },
    };
  }
}

const about = { cell: "c", execution: "e" };
const stream = (text: string, name = "stdout"): Operation => ({
  op: "append",
  ...about,
  output: { output_type: "stream", name, text },
});
const queued = (more: Partial<Operation> = {}): Operation => ({ op: "queued", ...about, session: "s", direct: false, ...more });
const texts = (cell: Cell) => cell.shown.map((output) => output.text);

function apply(operations: Operation[], session = "s"): Cell {
  const cell = new Cell("c");
  new Applier().apply(operations, [cell], session);
  return cell;
}

test("texts of one stream that follow each other are one text", () => {
  assert.deepEqual(
    joined([stream("a"), stream("b"), stream("c", "stderr"), stream("d")]).map((one) => one.output?.text),
    ["ab", "c", "d"],
  );
});

test("joining changes no operation that it was given", () => {
  const first = stream("a");
  joined([first, stream("b")]);
  assert.equal(first.output?.text, "a");
});

test("a cell that runs shows its outputs and a star", () => {
  const cell = apply([queued(), { op: "count", ...about, count: 4 }, stream("a")]);
  assert.deepEqual([texts(cell), cell.executionState, cell.executionCount], [["a"], "running", null]);
});

test("a cell that has ended shows its number", () => {
  const cell = apply([queued(), { op: "count", ...about, count: 4 }, { op: "end", ...about }]);
  assert.deepEqual([cell.executionState, cell.executionCount], ["idle", 4]);
});

test("outputs that the page gets from the kernel are skipped", () => {
  assert.deepEqual(texts(apply([queued({ direct: true }), stream("a")])), []);
});

test("outputs that another page gets from the kernel are shown", () => {
  assert.deepEqual(texts(apply([queued({ direct: true }), stream("a")], "other")), ["a"]);
});

test("outputs are cleared together with the next one", () => {
  const cell = apply([queued(), stream("a"), { op: "clear", ...about }, stream("b"), { op: "clear", ...about }]);
  assert.deepEqual(cell.cleared, [false, true, false]);
});

test("outputs of a cell that the page does not have are skipped", () => {
  assert.deepEqual(texts(apply([queued({ cell: "gone" }), { ...stream("a"), cell: "gone" }])), []);
});
