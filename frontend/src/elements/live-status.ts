/** `<live-status job="...">`: the current state in a chip, its reason, its duration, and a row for each replica. */
import { paintChip } from "../core/chip";
import { embedded, h } from "../core/dom";
import { getJson } from "../core/http";
import { fill, gettext } from "../core/i18n";
import { dateOf, isTerminal, stateLabel, type Job, type Replica } from "../core/job";
import { theLive, type Connection } from "../core/live";
import { ordinal } from "../core/numbers";
import { absolute } from "../core/time";
import { pserversOf, trainersOf } from "../core/staffing";
import { ElasticSwitch } from "./elastic-switch";
import { RehearsalPanel, type Offer } from "./rehearsal-panel";
import { ReplicaStepper } from "./replica-stepper";

export class LiveStatus extends HTMLElement {
  private stop: (() => void) | undefined;
  /** The parts of the job that other elements show, as one text: a change is announced to them. */
  private announced = "";
  private readonly steppers = [
    new ReplicaStepper({
      role: "trainer",
      label: gettext("Trainers"),
      fewer: gettext("One trainer fewer"),
      more: gettext("One trainer more"),
      staffing: trainersOf,
    }),
    new ReplicaStepper({
      role: "pserver",
      label: gettext("Parameter servers"),
      fewer: gettext("One parameter server fewer"),
      more: gettext("One parameter server more"),
      staffing: pserversOf,
    }),
  ];
  private readonly elastic = new ElasticSwitch();
  /** Only for permitted users; the page holds the permissions. */
  private rehearsal: RehearsalPanel | null = null;
  private readonly replicas = h("div");
  private readonly onConnection = (event: Event): void => this.showConnection((event as CustomEvent<Connection>).detail);

  connectedCallback(): void {
    const job = embedded<Job>("job-data");
    const offer = embedded<Offer>("rehearsal-data");
    this.rehearsal = offer && new RehearsalPanel(offer);
    const [trainers, pservers] = this.steppers.map(({ element }) => element);
    const steppers = this.hasAttribute("may-scale") ? [trainers, this.elastic.element, pservers] : [];
    this.replaceChildren(...steppers.filter((element) => element !== undefined), this.replicas);
    if (this.rehearsal) this.append(this.rehearsal.element);
    if (job) this.show(job);
    document.addEventListener("regatta:connection", this.onConnection);
    const id = this.getAttribute("job") ?? "";
    this.stop = theLive().subscribe({
      stream: "status",
      job: id,
      onFrame: (frame) => {
        if (frame.t === "status") this.show(frame.job_state);
      },
      poll: async () => this.show(await getJson<Job>(`/api/v1/jobs/${id}`)),
    });
  }

  disconnectedCallback(): void {
    this.stop?.();
    document.removeEventListener("regatta:connection", this.onConnection);
  }

  private show(job: Job): void {
    const chip = document.querySelector<HTMLElement>("[data-state-chip]");
    if (chip) paintChip(chip, job.state);
    const why = document.querySelector<HTMLElement>("[data-why]");
    if (why) why.textContent = job.why;
    const sizing = document.querySelector<HTMLElement>("[data-sizing]");
    if (sizing) {
      sizing.textContent = job.sizing ?? "";
      sizing.hidden = !job.sizing;
    }
    this.showDuration(job);
    for (const element of document.querySelectorAll<HTMLElement>("[data-when]")) {
      element.hidden = (element.dataset["when"] === "active") === isTerminal(job.state);
    }
    showPause(job);
    for (const stepper of this.steppers) stepper.show(job);
    this.elastic.show(job);
    this.rehearsal?.show(job);
    this.showReplicas(job);
    document.dispatchEvent(new CustomEvent("regatta:rendered"));
    document.dispatchEvent(new CustomEvent("regatta:heard"));
    const summary = [job.state, job.attempt, ...job.replicas.map(({ name, held }) => name + (held?.until ?? ""))].join();
    if (summary !== this.announced) this.announce(job);
    this.announced = summary;
  }

  private showReplicas(job: Job): void {
    // The rows are new at every change; a focused button of the old ones is focused again.
    const focused = this.replicas.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset["terminal"] : undefined;
    this.replicas.replaceChildren(replicasTable(job, this.hasAttribute("may-exec") && !isTerminal(job.state)));
    if (focused) this.replicas.querySelector<HTMLElement>(`[data-terminal="${focused}"]`)?.focus();
  }

  private announce(job: Job): void {
    document.dispatchEvent(new CustomEvent<Job>("regatta:job", { detail: job }));
    document.title = document.title.replace(/^[^·]*·/, `${stateLabel(job.state)} ·`);
  }

  private showDuration(job: Job): void {
    const element = document.querySelector<HTMLElement>("[data-duration]");
    if (!element) return;
    element.dataset["since"] = job.started ?? job.created;
    if (job.finished) element.dataset["until"] = job.finished;
    else delete element.dataset["until"];
    element.title = fill(gettext("Since {time}"), { time: absolute(dateOf(job.started ?? job.created)) });
  }

  private showConnection(state: Connection): void {
    const chip = document.querySelector<HTMLElement>("[data-connection]");
    if (!chip) return;
    chip.hidden = state === "live" || state === "connecting";
    chip.textContent = state === "polling" ? gettext("Live updates by polling") : gettext("Reconnecting…");
  }
}

/** The buttons of a running job: it can be paused, or go on. */
function showPause({ state, pause }: Job): void {
  const offered = state !== "RUNNING" ? "" : pause ? "resume" : "pause";
  for (const action of ["pause", "resume"]) {
    const button = document.querySelector<HTMLElement>(`[data-action=${action}]`);
    if (button) button.hidden = action !== offered;
  }
}

function replicasTable(job: Job, terminals: boolean): HTMLElement {
  if (job.replicas.length === 0) {
    return h("p", { class: "quiet" }, gettext("No replicas yet. They appear here when the job is launched."));
  }
  const head = [gettext("Replica"), gettext("State"), gettext("What happened")].map((text) => h("th", { scope: "col" }, text));
  return h(
    "table",
    { class: "table replicas" },
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...job.replicas.map((replica) => replicaRow(replica, terminals))),
  );
}

function replicaRow(replica: Replica, terminals: boolean): HTMLElement {
  const state = replica.held ? "held" : replica.state;
  const chip = h("span", { class: "dot-label", "data-replica-state": state }, stateLabel(state));
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, replica.name),
    h("td", {}, chip),
    h(
      "td",
      { class: "quiet" },
      replica.why,
      replica.start_number > 1 && h("div", {}, startInWords(replica.start_number)),
      terminals && hasTerminal(replica) && terminalButton(replica.name),
    ),
  );
}

/** Masters and parameter servers run the platform's code, and have no terminal. */
function hasTerminal({ role, state }: Replica): boolean {
  return role === "trainer" && ["starting", "registered"].includes(state);
}

function terminalButton(name: string): HTMLElement {
  return h(
    "button",
    { type: "button", class: "button small", "data-terminal": name },
    gettext("Terminal"),
    h("span", { class: "visually-hidden" }, ` ${name}`),
  );
}

function startInWords(startNumber: number): string {
  return fill(gettext("restarted ({nth} time)"), { nth: ordinal(startNumber) });
}

customElements.define("live-status", LiveStatus);
