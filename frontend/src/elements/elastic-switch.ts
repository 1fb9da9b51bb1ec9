/** A switch: whether the platform chooses the number of a job's trainers. */
import { h } from "../core/dom";
import { postJson } from "../core/http";
import { gettext } from "../core/i18n";
import { isTerminal, type Job } from "../core/job";
import { messageOf } from "../core/problem";

export class ElasticSwitch {
  private job: Job | null = null;
  private asking = false;
  private readonly box = h("input", { type: "checkbox", onchange: () => void this.send() });
  private readonly problem = h("p", { class: "field-error", role: "status", hidden: true });
  readonly element = h(
    "div",
    { class: "replica-stepper elastic-switch", hidden: true },
    h("label", { class: "inline" }, this.box, gettext("Elastic: the platform sets the number of trainers")),
    this.problem,
  );

  show(job: Job): void {
    this.job = job;
    const { min, max } = job.spec.roles.trainer;
    this.element.hidden = min === max || isTerminal(job.state) || job.state === "STOPPING";
    if (!this.asking) this.box.checked = job.elastic;
  }

  private async send(): Promise<void> {
    if (!this.job) return;
    this.asking = true;
    this.showError("");
    try {
      const { elastic } = await postJson<Job>(`/api/v1/jobs/${this.job.id}/scale`, { elastic: this.box.checked });
      this.job = { ...this.job, elastic };
    } catch (error) {
      this.showError(messageOf(error));
    }
    this.asking = false;
    this.show(this.job);
  }

  private showError(message: string): void {
    this.problem.textContent = message;
    this.problem.hidden = message === "";
  }
}
