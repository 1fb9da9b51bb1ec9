/**
 * JupyterLab extension: shows the outputs that the server records, whichever page started the cell.
 *
 * JupyterLab loads it as a container of module federation: `init` gets the modules of the page, `get` returns ours.
 */

import { FollowedNotebook } from "./followed-notebook";
import type { Application, NotebookPackage, Panel, Shared, Tracker } from "./jupyterlab";
import { OutputSocket } from "./output-socket";

const NAME = "regatta-notebook";
const SAVE_PAUSE = 300;

let shared: Shared = {};

async function load(name: string): Promise<unknown> {
  const [version] = Object.values(shared[name] ?? {});
  if (!version) throw new Error(`JupyterLab shares no ${name}`);
  return (await version.get())();
}

/** Saves a notebook soon after a cell was started, so that the code is in the file when the page is closed. */
function saveWhenExecuted(notebook: NotebookPackage, tracker: Tracker): void {
  const waiting = new Set<unknown>();
  notebook.NotebookActions.executionScheduled.connect((_, args) => {
    if (waiting.has(args.notebook)) return;
    waiting.add(args.notebook);
    setTimeout(() => {
      waiting.delete(args.notebook);
      tracker.forEach((panel) => {
        if (panel.content === args.notebook && !panel.isDisposed) panel.context.save().catch(() => undefined);
      });
    }, SAVE_PAUSE);
  });
}

function activate(notebook: NotebookPackage, application: Application, tracker: Tracker): void {
  const socket = new OutputSocket(`${application.serviceManager.serverSettings.wsUrl}regatta/outputs`);
  const follow = (panel: Panel) => void new FollowedNotebook(panel, socket).begin();
  tracker.forEach(follow);
  tracker.widgetAdded.connect((_, panel) => follow(panel));
  saveWhenExecuted(notebook, tracker);
}

async function plugin(): Promise<() => object> {
  const notebook = (await load("@jupyterlab/notebook")) as NotebookPackage;
  const outputs = {
    id: `${NAME}:outputs`,
    description: "Shows the outputs that the server records.",
    autoStart: true,
    requires: [notebook.INotebookTracker],
    activate: (application: Application, tracker: Tracker) => activate(notebook, application, tracker),
  };
  return () => ({ __esModule: true, default: outputs });
}

const page = window as unknown as { _JUPYTERLAB?: Record<string, object> };
page._JUPYTERLAB ??= {};
page._JUPYTERLAB[NAME] = {
  init: (scope: Shared) => {
    shared = scope;
  },
  get: () => plugin(),
};
