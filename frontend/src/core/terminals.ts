/** The terminals of a job page: opened by buttons, remembered in the tab, and opened again after a reload. */
import { embedded } from "./dom";
import type { Job } from "./job";

interface Kept {
  replica: string;
  session: string;
}

/** Starts the terminals of the page; those that were open before a reload return to their shells. */
export function startTerminals(): void {
  const place = document.querySelector<HTMLElement>("[data-terminals]");
  const job = embedded<Job>("job-data");
  if (!place || !job) return;
  const key = `regatta-terminals:${job.id}`;
  const keep = (): void => sessionStorage.setItem(key, JSON.stringify(openTerminals(place)));
  document.addEventListener("click", (event) => {
    const button = (event.target as Element).closest?.<HTMLElement>("[data-terminal]");
    if (button) void open(place, job.id, { replica: button.dataset["terminal"] ?? "", session: "" });
  });
  place.addEventListener("regatta:terminal", keep);
  document.addEventListener("regatta:terminal-closed", (event) => {
    keep();
    place.hidden = !place.querySelector("terminal-view");
    document.querySelector<HTMLElement>(`[data-terminal="${(event as CustomEvent<string>).detail}"]`)?.focus();
  });
  for (const kept of JSON.parse(sessionStorage.getItem(key) ?? "[]") as Kept[]) void open(place, job.id, kept);
}

function openTerminals(place: HTMLElement): Kept[] {
  return [...place.querySelectorAll("terminal-view[session]")].map((view) => ({
    replica: view.getAttribute("replica") ?? "",
    session: view.getAttribute("session") ?? "",
  }));
}

async function open(place: HTMLElement, job: string, { replica, session }: Kept): Promise<void> {
  place.hidden = false;
  await import("../elements/terminal-view");
  const view = document.createElement("terminal-view");
  view.setAttribute("job", job);
  view.setAttribute("replica", replica);
  if (session) view.setAttribute("session", session);
  place.append(view);
  view.scrollIntoView({ block: "nearest" });
}
