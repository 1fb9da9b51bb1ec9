/** Applies operations of the server's record of outputs to the cells of an open notebook. */

import type { CellModel } from "./jupyterlab";

export interface Output {
  output_type: string;
  name?: string;
  text?: string;
}

export interface Operation {
  op: string;
  cell: string;
  execution: string;
  session?: string;
  direct?: boolean;
  count?: number;
  output?: Output;
  index?: number;
}

/** Joins texts of one stream that follow each other: a cell that prints fast is drawn once per frame. */
export function joined(operations: readonly Operation[]): Operation[] {
  const made: Operation[] = [];
  let texts: string[] = [];
  for (const operation of operations) {
    const last = made[made.length - 1];
    if (last && sameStream(last, operation)) {
      texts.push(operation.output!.text!);
      continue;
    }
    close(last, texts);
    texts = operation.op === "append" && operation.output?.text !== undefined ? [operation.output.text] : [];
    made.push({ ...operation });
  }
  close(made[made.length - 1], texts);
  return made;
}

function sameStream(one: Operation, next: Operation): boolean {
  return (
    one.op === "append" &&
    next.op === "append" &&
    one.execution === next.execution &&
    one.output?.output_type === "stream" &&
    next.output?.output_type === "stream" &&
    one.output.name === next.output.name
  );
}

function close(operation: Operation | undefined, texts: readonly string[]): void {
  if (operation && texts.length > 1) operation.output = { ...operation.output!, text: texts.join("") };
}

/** Applies operations in their order. It skips executions whose output the page gets from the kernel itself. */
export class Applier {
  private readonly skipped = new Set<string>();
  private readonly counts = new Map<string, number>();

  apply(operations: readonly Operation[], cells: Iterable<CellModel>, session: string): void {
    const byId = new Map<string, CellModel>();
    for (const cell of cells) byId.set(cell.id, cell);
    const all = joined(operations);
    all.forEach((operation, at) => {
      if (operation.op === "queued" && operation.direct && operation.session === session)
        this.skipped.add(operation.execution);
      const cell = byId.get(operation.cell);
      if (cell?.type !== "code" || this.skipped.has(operation.execution)) return;
      this.applyOne(operation, cell, all[at + 1]);
    });
  }

  private applyOne(operation: Operation, cell: CellModel, next: Operation | undefined): void {
    switch (operation.op) {
      case "queued":
        cell.outputs.clear();
        cell.trusted = true;
        cell.executionState = "running";
        break;
      case "count":
        this.counts.set(operation.execution, operation.count!);
        break;
      case "append":
        cell.outputs.add(operation.output);
        break;
      case "set":
        if (operation.index! < cell.outputs.length) cell.outputs.set(operation.index!, operation.output);
        break;
      case "clear":
        // Together with the next output, so that an animation does not flicker.
        cell.outputs.clear(next?.op === "append" && next.execution === operation.execution);
        break;
      case "end":
        cell.executionCount = this.counts.get(operation.execution) ?? cell.executionCount;
        cell.executionState = "idle";
        this.counts.delete(operation.execution);
    }
  }
}
