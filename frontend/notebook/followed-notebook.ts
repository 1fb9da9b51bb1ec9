/** Keeps the outputs of one open notebook as the server has recorded them. */

import type { Panel } from "./jupyterlab";
import { Applier, type Operation } from "./operations";
import type { OutputSocket } from "./output-socket";

const KEY = "regatta";

interface Position {
  log: string;
  cursor: number;
}

export class FollowedNotebook {
  private readonly applier = new Applier();
  private position: Position = { log: "", cursor: 0 };

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

  private receive(frame: Position & { operations: Operation[] }): void {
    const { model } = this.panel.context;
    this.applier.apply(frame.operations, model.cells, this.session);
    this.position = { log: frame.log, cursor: frame.cursor };
    // Saved with the notebook, it says that what this page shows is no older.
    if (frame.operations.some((operation) => operation.op === "end"))
      model.sharedModel.transact(() => model.setMetadata(KEY, { ...this.position }), false);
  }
}
