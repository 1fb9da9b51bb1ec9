/** Keeps the outputs of one open notebook as the server has recorded them. */

import type { Panel } from "./jupyterlab";
import { Applier, type Operation } from "./operations";
import type { OutputSocket } from "./output-socket";

const KEY = "regatta";

// A page draws outputs at most this share of its time: drawing costs time in the length of all text of the cell.
const SHARE = 0.25;
const LONGEST_PAUSE = 2_000;

interface Position {
  log: string;
  cursor: number;
}

interface Frame extends Position {
  operations: Operation[];
}

export class FollowedNotebook {
  private readonly applier = new Applier();
  private position: Position = { log: "", cursor: 0 };
  private waiting: Frame[] = [];
  private drawing = false;

  constructor(
    private readonly panel: Panel,
    private readonly socket: OutputSocket,
  ) {}

  async begin(): Promise<void> {
    const { panel } = this;
    await panel.context.ready;
    if (panel.isDisposed) return;
    this.readPosition();
    this.socket.follow(panel.id, () => this.request(), (frame) => this.receive(frame));
    panel.disposed.connect(() => this.socket.leave(panel.id));
    panel.sessionContext.kernelChanged.connect(() => this.socket.restart(panel.id));
    panel.context.pathChanged.connect(() => this.socket.restart(panel.id));
    panel.context.fileChanged.connect(() => this.reloaded());
  }

  private get session(): string {
    return this.panel.sessionContext.session?.kernel?.clientId ?? "";
  }

  private request(): object {
    const { log, cursor } = this.position;
    // Asked for again.
    this.waiting = [];
    return { path: this.panel.context.path, log, after: cursor, session: this.session };
  }

  /** The notebook's contents came from the server again, with the outputs up to another cursor. */
  private reloaded(): void {
    const found = this.panel.context.model.getMetadata(KEY) as Position | undefined;
    if (!found || (found.log === this.position.log && found.cursor <= this.position.cursor)) return;
    this.readPosition();
    this.socket.restart(this.panel.id);
  }

  private readPosition(): void {
    const { model } = this.panel.context;
    const found = model.getMetadata(KEY) as (Position & { running?: string[] }) | undefined;
    if (!found) return;
    this.position = { log: found.log, cursor: found.cursor };
    const running = new Set(found.running ?? []);
    for (const cell of model.cells) if (running.has(cell.id)) cell.executionState = "running";
  }

  private receive(frame: Frame): void {
    this.waiting.push(frame);
    if (!this.drawing) this.draw();
  }

  /** Applies what has arrived, and then lets the page rest in proportion to what it cost. */
  private draw(): void {
    const frames = this.waiting;
    if (frames.length === 0 || this.panel.isDisposed) {
      this.drawing = false;
      return;
    }
    this.waiting = [];
    this.drawing = true;
    const began = performance.now();
    this.apply(frames);
    setTimeout(() => {
      const cost = performance.now() - began;
      setTimeout(() => this.draw(), Math.min(LONGEST_PAUSE, cost * (1 / SHARE - 1)));
    });
  }

  private apply(frames: readonly Frame[]): void {
    const { model } = this.panel.context;
    const operations = frames.flatMap((frame) => frame.operations);
    const { log, cursor } = frames[frames.length - 1]!;
    this.applier.apply(operations, model.cells, this.session);
    this.position = { log, cursor };
    // Saved with the notebook, it says that what this page shows is no older.
    if (operations.some((operation) => operation.op === "end"))
      model.sharedModel.transact(() => model.setMetadata(KEY, { ...this.position }), false);
  }
}
