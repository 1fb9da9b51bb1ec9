/** The job list, updated while it is open: states change in place, and a new job is fetched with its row. */
import { debounce } from "./core/dom";
import { isTerminal, type Job } from "./core/job";
import { followJobs } from "./core/jobs";
import { paintChip } from "./core/chip";

const list = document.querySelector<HTMLElement>("[data-job-list]") as HTMLElement;

/** Every job that the socket has reported: one that is not here is new, and may belong in the list. */
const met = new Set<string>();

function update(job: Job, first: boolean): void {
  const fresh = !met.has(job.id);
  met.add(job.id);
  const row = document.querySelector<HTMLElement>(`[data-job="${CSS.escape(job.id)}"]`);
  const chip = row?.querySelector<HTMLElement>("[data-state]");
  if (row && chip) paint(row, chip, job);
  else if (fresh && !first) refresh();
}

function paint(row: HTMLElement, chip: HTMLElement, job: Job): void {
  // The row holds the duration too: the server renders it when the job begins or ends.
  if (chip.dataset["state"] !== job.state && (job.state === "RUNNING" || isTerminal(job.state))) refresh();
  paintChip(chip, job.state);
  const why = row.querySelector<HTMLElement>("[data-row-why]");
  if (why) why.textContent = job.why;
}

/** The rows of the current address, from the server: only the server applies the filters. */
const refresh = debounce(() => {
  void fetch(location.href, { headers: { "HX-Request": "true" } })
    .then((response) => (response.ok ? response.text() : ""))
    .then((html) => {
      const fresh = new DOMParser().parseFromString(html, "text/html").querySelector("#jobs");
      if (fresh) document.querySelector("#jobs")?.replaceWith(fresh);
      document.dispatchEvent(new CustomEvent("regatta:rendered"));
    });
}, 500);

followJobs(list.dataset["jobList"] ?? "", {
  onJobs: (jobs, first) => jobs.forEach((job) => update(job, first)),
  look: refresh,
});
