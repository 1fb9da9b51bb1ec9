/** The desired number of replicas of a role: one more or fewer, within the current limits of the role. */
import { debounce, h } from "../core/dom";
import { postJson } from "../core/http";
import type { Job } from "../core/job";
import { messageOf } from "../core/problem";
import type { Staffing } from "../core/staffing";

// Several clicks in a row are one request.
const SETTLE_MS = 400;

/** A role that can be scaled, and the labels of its buttons. */
export interface Scalable {
  role: "trainer" | "pserver";
  label: string;
  fewer: string;
  more: string;
  /** The state of the role in a job; null when it cannot be scaled now. */
  staffing: (job: Job) => Staffing | null;
}

export class ReplicaStepper {
  readonly element: HTMLElement;
  private job: Job | null = null;
  /** The number that the reader has chosen and the portal has not confirmed yet. */
  private chosen: number | null = null;
  private readonly number = h("output", { "aria-live": "polite" });
  private readonly fewer = h("button", { class: "button small", type: "button", onclick: () => this.step(-1) }, "−");
  private readonly more = h("button", { class: "button small", type: "button", onclick: () => this.step(1) }, "+");
  private readonly note = h("span", { class: "quiet" });
  private readonly problem = h("p", { class: "field-error", role: "status", hidden: true });
  private readonly ask = debounce(() => void this.send(), SETTLE_MS);

  constructor(private readonly scalable: Scalable) {
    const { role, label } = scalable;
    this.fewer.setAttribute("aria-label", scalable.fewer);
    this.more.setAttribute("aria-label", scalable.more);
    const group = h("span", { class: "stepper", role: "group", "aria-label": label }, this.fewer, this.number, this.more);
    this.element = h("div", { class: "replica-stepper", "data-role": role, hidden: true });
    this.element.append(h("span", {}, label), group, this.note, this.problem);
  }

  show(job: Job): void {
    this.job = job;
    const staffing = this.scalable.staffing(job);
    this.element.hidden = staffing === null;
    if (!staffing) return;
    const shown = this.chosen ?? staffing.desired;
    this.number.textContent = String(shown);
    this.note.textContent = staffing.note;
    this.fewer.disabled = shown <= staffing.min;
    this.more.disabled = shown >= staffing.max;
  }

  private step(by: number): void {
    const staffing = this.job && this.scalable.staffing(this.job);
    if (!this.job || !staffing) return;
    this.chosen = (this.chosen ?? staffing.desired) + by;
    this.showError("");
    this.show(this.job);
    this.ask();
  }

  private async send(): Promise<void> {
    const { job, chosen } = this;
    if (!job || chosen === null) return;
    try {
      const answer = await postJson<Job>(`/api/v1/jobs/${job.id}/scale`, { [this.scalable.role]: chosen });
      this.job = { ...(this.job as Job), trainers: answer.trainers, pservers: answer.pservers };
    } catch (error) {
      this.showError(messageOf(error));
    }
    // A choice that was made meanwhile is sent as a request of its own.
    if (this.chosen === chosen) this.chosen = null;
    this.show(this.job as Job);
  }

  private showError(message: string): void {
    this.problem.textContent = message;
    this.problem.hidden = message === "";
  }
}
