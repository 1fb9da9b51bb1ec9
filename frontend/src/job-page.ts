/** The job page around its elements: tabs, events, output files, cancel and retry. */
import { embedded, h } from "./core/dom";
import { ApiError, getJson, postJson } from "./core/http";
import { fill, gettext } from "./core/i18n";
import { dateOf, isTerminal, stateLabel, type Job, type JobEvent } from "./core/job";
import { happeningLabel, happeningsOf, type Happening } from "./core/happenings";
import { bytes } from "./core/numbers";
import { absolute } from "./core/time";
import { startTerminals } from "./core/terminals";
import { followTimeline, hasOlder, loadOlder } from "./core/timeline";

interface ArtifactRow {
  name: string;
  size: number;
  sha256: string;
}

interface ArtifactPage {
  artifacts: ArtifactRow[];
  next: string | null;
}

const job = embedded<Job>("job-data") as Job;
const api = `/api/v1/jobs/${job.id}`;

function panel(name: string): HTMLElement {
  return document.querySelector(`[data-panel="${name}"]`) as HTMLElement;
}

// --- Tabs; the chosen one is in the address ----------------------------------------------------------------------------

function choose(name: string): void {
  for (const tab of document.querySelectorAll<HTMLElement>("[data-tab]")) {
    const chosen = tab.dataset["tab"] === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    panel(tab.dataset["tab"] ?? "").hidden = !chosen;
  }
  if (name === "code") void showCode();
  if (name === "artifacts") void showArtifacts();
}

function startTabs(): void {
  const tabs = [...document.querySelectorAll<HTMLElement>("[data-tab]")];
  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => {
      choose(tab.dataset["tab"] ?? "");
      history.replaceState(null, "", `#${tab.dataset["tab"]}`);
    });
    tab.addEventListener("keydown", (event) => {
      const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      const next = tabs[(index + by + tabs.length) % tabs.length];
      if (by && next) {
        next.focus();
        next.click();
      }
    });
  });
  const wanted = location.hash.slice(1);
  choose(tabs.some((tab) => tab.dataset["tab"] === wanted) ? wanted : "logs");
}

// --- What the tabs show ------------------------------------------------------------------------------------------------

async function showCode(): Promise<void> {
  const editor = panel("code").querySelector("code-editor");
  if (!editor || editor.hasAttribute("loaded")) return;
  editor.setAttribute("loaded", "");
  const code = embedded<{ files: Record<string, string>; entrypoint: string }>("code-data");
  await import("./elements/code-editor");
  if (code) (editor as import("./elements/code-editor").CodeEditor).load(code.files, code.entrypoint);
}

function showEvents(events: JobEvent[]): void {
  const happenings = happeningsOf(events);
  const rows = events.map((event, i) => eventRow(event, happenings[i] ?? null));
  panel("events").replaceChildren(
    ...(hasOlder() ? [olderButton()] : []),
    rows.length ? h("ol", { class: "timeline" }, ...rows) : h("p", { class: "quiet" }, gettext("No events yet.")),
  );
  document.dispatchEvent(new CustomEvent("regatta:rendered"));
}

function olderButton(): HTMLElement {
  const button = h("button", { type: "button", class: "button small" }, gettext("Older events"));
  button.addEventListener("click", () => {
    button.setAttribute("disabled", "");
    void loadOlder().finally(() => button.removeAttribute("disabled"));
  });
  return button;
}

function eventRow(event: JobEvent, happening: Happening | null): HTMLElement {
  const date = dateOf(event.time);
  return h(
    "li",
    { "data-kind": event.state || event.kind, ...(happening ? { "data-happening": happening } : {}) },
    h("time", { datetime: date.toISOString(), title: absolute(date), class: "quiet" }, date.toLocaleTimeString()),
    h("strong", {}, event.kind === "state" ? stateLabel(event.state) : happening ? happeningLabel(happening) : event.replica || event.kind),
    h("span", {}, event.text, event.actor && h("em", { class: "quiet" }, ` ${fill(gettext("by {name}"), { name: event.actor })}`)),
  );
}

async function showArtifacts(): Promise<void> {
  const page = await artifactPage();
  const rows = page?.artifacts ?? [];
  panel("artifacts").replaceChildren(rows.length ? artifactTable(rows) : h("p", { class: "quiet" }, noArtifacts()));
  offerMoreArtifacts(page?.next);
}

function artifactPage(cursor = ""): Promise<ArtifactPage | null> {
  return getJson<ArtifactPage>(`${api}/artifacts?limit=100&cursor=${encodeURIComponent(cursor)}`).catch(() => null);
}

/** A button below the table while there is another page. */
function offerMoreArtifacts(cursor: string | null | undefined): void {
  if (!cursor) return;
  const button = h("button", { type: "button", class: "button small" }, gettext("More files"));
  button.addEventListener("click", () => {
    button.setAttribute("disabled", "");
    void artifactPage(cursor).then((page) => {
      if (!page) return button.removeAttribute("disabled");
      button.remove();
      panel("artifacts").querySelector("tbody")?.append(...page.artifacts.map(artifactRow));
      offerMoreArtifacts(page.next);
    });
  });
  panel("artifacts").append(button);
}

function noArtifacts(): string {
  return isTerminal(state) ? gettext("No files.") : gettext("The trained model appears here when the job ends.");
}

function artifactTable(rows: ArtifactRow[]): HTMLElement {
  const head = [gettext("File"), gettext("Size"), "SHA-256", ""].map((text) => h("th", { scope: "col" }, text));
  return h(
    "table",
    { class: "table" },
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...rows.map(artifactRow)),
  );
}

function artifactRow({ name, size, sha256 }: ArtifactRow): HTMLElement {
  const href = `${api}/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`;
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name),
    h("td", {}, bytes(size)),
    h("td", { class: "quiet digest", title: sha256 }, sha256.slice(0, 12)),
    h("td", { class: "right" }, h("a", { class: "button small", href, download: true }, gettext("Download"))),
  );
}

// --- Cancel and retry --------------------------------------------------------------------------------------------------

function startActions(): void {
  const dialog = document.querySelector<HTMLDialogElement>("dialog#cancel");
  const cancel = document.querySelector<HTMLButtonElement>("[data-action=cancel]");
  cancel?.addEventListener("click", () => dialog?.showModal());
  dialog?.querySelector("form")?.addEventListener("submit", (event) => {
    if ((event as SubmitEvent).submitter?.getAttribute("value") === "yes") void act("cancel");
  });
  const retry = document.querySelector<HTMLButtonElement>("[data-action=retry]");
  retry?.addEventListener("click", () => void act("retry"));
  for (const action of ["pause", "resume"] as const) {
    document.querySelector(`[data-action=${action}]`)?.addEventListener("click", () => void act(action));
  }
  // The page has them disabled until now: an earlier click would be lost without a message.
  for (const button of [cancel, retry]) button?.removeAttribute("disabled");
}

const WAITING: Record<string, () => string> = {
  cancel: () => gettext("Cancelling…"),
  pause: () => gettext("Pausing…"),
};

async function act(action: "cancel" | "retry" | "pause" | "resume"): Promise<void> {
  const note = document.querySelector("[data-action-note]") as HTMLElement;
  note.textContent = WAITING[action]?.() ?? "";
  try {
    const answer = await postJson<Job | null>(`${api}/${action}`, {});
    if (answer?.id && answer.id !== job.id) location.assign(`/n/${job.namespace}/jobs/${answer.id}`);
    else if (action === "retry") location.reload();
    else if (action !== "cancel") note.textContent = "";
  } catch (error) {
    note.textContent = error instanceof ApiError ? error.problem.detail : gettext("The portal cannot be reached. Try again.");
  }
}

let state = job.state;
document.addEventListener("regatta:job", (event) => {
  state = (event as CustomEvent<Job>).detail.state;
  // The cancellation was accepted, or came too late.
  if (isTerminal(state)) document.querySelector("[data-action-note]")?.replaceChildren();
  const chosen = document.querySelector<HTMLElement>("[data-tab][aria-selected=true]")?.dataset["tab"];
  if (chosen === "artifacts") void showArtifacts();
});
startTabs();
startActions();
startTerminals();
followTimeline(showEvents);
