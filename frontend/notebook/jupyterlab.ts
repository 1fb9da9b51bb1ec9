/** The part of JupyterLab's interfaces that the extension uses. JupyterLab provides the implementations in the page. */

export interface Signal<Arguments> {
  connect(slot: (sender: unknown, args: Arguments) => void): void;
}

export interface OutputModel {
  add(output: unknown): number;
  set(index: number, output: unknown): void;
  clear(wait?: boolean): void;
  readonly length: number;
}

export interface CellModel {
  readonly id: string;
  readonly type: string;
  readonly outputs: OutputModel;
  executionCount: number | null;
  executionState: string;
  trusted: boolean;
}

export interface NotebookModel {
  readonly cells: Iterable<CellModel>;
  readonly sharedModel: { transact(change: () => void, undoable: boolean): void };
  getMetadata(key: string): unknown;
  setMetadata(key: string, value: unknown): void;
}

export interface Panel {
  readonly id: string;
  readonly content: unknown;
  readonly isDisposed: boolean;
  readonly disposed: Signal<void>;
  readonly context: {
    readonly path: string;
    readonly ready: Promise<void>;
    readonly model: NotebookModel;
    readonly fileChanged: Signal<unknown>;
    readonly pathChanged: Signal<string>;
    save(): Promise<void>;
  };
  readonly sessionContext: {
    readonly session: { readonly kernel: { readonly clientId: string } | null } | null;
    readonly kernelChanged: Signal<unknown>;
  };
}

export interface Tracker {
  readonly widgetAdded: Signal<Panel>;
  forEach(visit: (panel: Panel) => void): void;
}

export interface Application {
  readonly serviceManager: { readonly serverSettings: { readonly wsUrl: string } };
}

export interface NotebookPackage {
  readonly INotebookTracker: unknown;
  readonly NotebookActions: { readonly executionScheduled: Signal<{ notebook: unknown }> };
}

/** Modules that JupyterLab shares with extensions: by package, then by version. */
export type Shared = Record<string, Record<string, { get(): Promise<() => unknown> | (() => unknown) }>>;
