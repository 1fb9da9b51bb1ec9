/** How many trainers there shall be: one more or fewer, within the specification's bounds, while the job runs. */
import { debounce, h } from "../core/dom";
import { postJson } from "../core/http";
import { fill, gettext } from "../core/i18n";
import { trainersOf, type Job } from "../core/job";
import { sentenceOf } from "../core/problem";

// Some clicks in a row are one wish.
const SETTLE_MS = 400;

export class TrainerStepper {
  readonly element = h("div", { class: "trainer-stepper", hidden: true });
  private job: Job | null = null;
  /** What the reader has chosen and the portal has not answered yet. */
  private chosen: number | null = null;
  private readonly number = h("output", { "aria-live": "polite" });
  private readonly fewer = h("button", { class: "button small", type: "button", onclick: () => this.step(-1) }, "−");
  private readonly more = h("button", { class: "button small", type: "button", onclick: () => this.step(1) }, "+");
  private readonly bounds = h("span", { class: "quiet" });
  private readonly problem = h("p", { class: "field-error", role: "status", hidden: true });
  private readonly ask = debounce(() => void this.send(), SETTLE_MS);

  constructor() {
    this.fewer.setAttribute("aria-label", gettext("One trainer fewer"));
    this.more.setAttribute("aria-label", gettext("One trainer more"));
    const group = h("span", { class: "stepper", role: "group", "aria-label": gettext("Trainers") }, this.fewer, this.number, this.more);
    this.element.append(h("span", {}, gettext("Trainers")), group, this.bounds, this.problem);
  }

  show(job: Job): void {
    this.job = job;
    const { min, max } = trainersOf(job);
    const shown = this.chosen ?? trainersOf(job).wanted;
    this.element.hidden = job.state !== "RUNNING" || min === max;
    this.number.textContent = String(shown);
    this.bounds.textContent = fill(gettext("{least} to {most}"), { least: min, most: max });
    this.fewer.disabled = shown <= min;
    this.more.disabled = shown >= max;
  }

  private step(by: number): void {
    if (!this.job) return;
    this.chosen = (this.chosen ?? trainersOf(this.job).wanted) + by;
    this.complain("");
    this.show(this.job);
    this.ask();
  }

  private async send(): Promise<void> {
    const { job, chosen } = this;
    if (!job || chosen === null) return;
    try {
      const answer = await postJson<Job>(`/api/v1/jobs/${job.id}/scale`, { trainer: chosen });
      this.job = { ...(this.job as Job), trainers: answer.trainers };
    } catch (error) {
      this.complain(sentenceOf(error));
    }
    // A choice that was made meanwhile is asked for on its own.
    if (this.chosen === chosen) this.chosen = null;
    this.show(this.job as Job);
  }

  private complain(sentence: string): void {
    this.problem.textContent = sentence;
    this.problem.hidden = sentence === "";
  }
}
