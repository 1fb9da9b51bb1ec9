/**
 * Fault injection: the role to kill and how often, start and end, and the result of every kill. For the job's owner.
 */
import { h } from "../core/dom";
import { deleteJson, postJson } from "../core/http";
import { fill, gettext } from "../core/i18n";
import { isTerminal, type Job, type JobEvent, type Rehearsal } from "../core/job";
import { messageOf } from "../core/problem";
import { survivals, type Survival } from "../core/survivals";
import { absolute } from "../core/time";
import { followTimeline } from "../core/timeline";

/** The roles that may be killed, or why none may. A rehearsal ends after `most` kills. */
export interface Offer {
  roles: string[];
  most: number;
  why: string;
}

const SHOWN = 5;
const ROLES: Record<string, () => string> = {
  trainer: () => gettext("a trainer"),
  pserver: () => gettext("a parameter server"),
  master: () => gettext("the master"),
};

export class RehearsalPanel {
  readonly element = h("details", { class: "rehearsal" });
  private job: Job | null = null;
  private events: JobEvent[] = [];
  private readonly role = h("select", { name: "kill", class: "small" });
  private readonly every = h("input", { name: "every", class: "small", value: "10s", required: true, autocomplete: "off", size: 5 });
  private readonly form = h("form", { class: "rehearsal-form" });
  private readonly running = h("p", { role: "status", hidden: true });
  private readonly stop = h("button", { class: "button small", type: "button", hidden: true, onclick: () => void this.end() }, gettext("Stop the rehearsal"));
  private readonly problem = h("p", { class: "field-error", role: "alert", hidden: true });
  private readonly kills = h("ul", { class: "rehearsal-kills" });

  constructor(private readonly offer: Offer) {
    this.element.append(h("summary", {}, gettext("Rehearse a failure")));
    this.element.append(...(offer.roles.length ? this.controls() : [h("p", { class: "quiet" }, offer.why)]));
    followTimeline((events) => {
      this.events = events;
      this.showKills();
    });
  }

  show(job: Job): void {
    this.job = job;
    const { rehearsal } = job;
    this.element.hidden = isTerminal(job.state);
    this.form.hidden = rehearsal !== null;
    this.running.hidden = this.stop.hidden = rehearsal === null;
    // A running rehearsal is expanded.
    if (rehearsal) this.element.open = true;
    this.running.textContent = rehearsal ? this.inWords(rehearsal) : "";
    this.showKills();
  }

  private controls(): HTMLElement[] {
    const { roles, most } = this.offer;
    // A trainer first: every job has one, and it is the role that leaves most often.
    for (const role of [...roles].reverse()) this.role.append(h("option", { value: role }, nameOf(role)));
    this.form.append(
      h("label", { class: "inline" }, gettext("Kill"), this.role),
      h("label", { class: "inline" }, gettext("every"), this.every),
      h("button", { class: "button small", type: "submit" }, gettext("Start")),
    );
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.start();
    });
    const purpose = fill(gettext("Kills one process at a time to show how the job recovers. Stops after {most} kills."), { most });
    return [h("p", { class: "quiet" }, purpose), this.form, this.running, this.stop, this.problem, this.kills];
  }

  private inWords({ kill, every, done }: Rehearsal): string {
    const values = { role: nameOf(kill), every, done, most: this.offer.most };
    return fill(gettext("Kills {role} every {every}: {done} of {most} so far."), values);
  }

  private start(): Promise<void> {
    return this.ask((address) => postJson<Job>(address, { kill: this.role.value, every: this.every.value.trim() }));
  }

  private end(): Promise<void> {
    return this.ask((address) => deleteJson<Job>(address));
  }

  private async ask(request: (address: string) => Promise<Job>): Promise<void> {
    if (!this.job) return;
    this.showError("");
    try {
      const { rehearsal } = await request(`/api/v1/jobs/${this.job.id}/rehearse`);
      this.show({ ...this.job, rehearsal });
      // The pressed button is hidden: keyboard focus moves to the other one.
      if (rehearsal) this.stop.focus();
      else this.role.focus();
    } catch (error) {
      this.showError(messageOf(error));
    }
  }

  private showError(message: string): void {
    this.problem.textContent = message;
    this.problem.hidden = message === "";
  }

  private showKills(): void {
    const found = survivals(this.events, this.job?.attempt ?? 0).slice(0, SHOWN);
    this.kills.replaceChildren(...found.map(killRow));
  }
}

function killRow({ time, text, back }: Survival): HTMLElement {
  const date = new Date(time);
  const clock = h("time", { datetime: time, title: absolute(date), class: "quiet" }, date.toLocaleTimeString());
  return h("li", { "data-back": back }, clock, " ", text);
}

function nameOf(role: string): string {
  return ROLES[role]?.() ?? role;
}
