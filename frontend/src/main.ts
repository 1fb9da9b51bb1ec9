/** Every page: theme, menus, times, the quota line; and the elements of single pages, each loaded where it is used. */
import { debounce } from "./core/dom";
import { getJson } from "./core/http";
import { followJobs } from "./core/jobs";
import { bytes } from "./core/numbers";
import { keepTimesTrue } from "./core/time";

const THEMES = ["auto", "light", "dark"] as const;
const YEAR_SECONDS = 31_536_000;

function startTheme(): void {
  const root = document.documentElement;
  document.querySelector("[data-action=theme]")?.addEventListener("click", () => {
    const now = THEMES.indexOf(root.dataset["theme"] as (typeof THEMES)[number]);
    const next = THEMES[(now + 1) % THEMES.length] as string;
    root.dataset["theme"] = next;
    // A cookie, so that the server already sends the next page in this theme.
    document.cookie = `regatta_theme=${next}; path=/; max-age=${YEAR_SECONDS}; samesite=lax`;
    document.dispatchEvent(new CustomEvent("regatta:theme"));
  });
}

/** Menus are `<details>`: one at a time, closed by Esc and by a click elsewhere. */
function startMenus(): void {
  const close = (but?: Node): void => {
    for (const menu of document.querySelectorAll<HTMLDetailsElement>("details.menu[open]")) {
      if (but && menu.contains(but)) continue;
      // Keyboard focus inside the menu moves to its summary.
      if (!but && menu.contains(document.activeElement)) menu.querySelector("summary")?.focus();
      menu.open = false;
    }
  };
  document.addEventListener("click", (event) => close(event.target as Node));
  document.addEventListener("keydown", (event) => event.key === "Escape" && close());
}

/** `?` shows the keys, `/` focuses the search of the page; while the user types they are plain characters. */
function startShortcuts(): void {
  const dialog = document.querySelector<HTMLDialogElement>("dialog#shortcuts");
  document.querySelector("[data-action=shortcuts]")?.addEventListener("click", () => dialog?.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isWriting(event.target)) return;
    if (event.key === "?") dialog?.showModal();
    else if (event.key === "/") focusSearch(event);
  });
}

function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}

function focusSearch(event: KeyboardEvent): void {
  const search = [...document.querySelectorAll<HTMLInputElement>("input[type=search]")].find((field) => field.offsetParent);
  if (!search || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  search.focus();
  search.select();
}

/** Selects that take effect at once; their forms keep a button for browsers without scripts. */
function startAutoSubmit(): void {
  for (const field of document.querySelectorAll<HTMLSelectElement>("select[data-auto-submit]")) {
    field.addEventListener("change", () => field.form?.requestSubmit());
  }
}

interface Quota {
  used: Record<string, number>;
  limits: Record<string, number | null>;
}

/** The quota line is updated while the page is open: it is requested when a job of the namespace begins or ends. */
function startQuota(): void {
  const line = document.querySelector<HTMLElement>("[data-quota]");
  if (!line) return;
  const look = debounce(() => void showQuota(line), 200);
  look();
  followJobs(line.dataset["quota"] ?? "", { onJobs: look, look });
}

async function showQuota(line: HTMLElement): Promise<void> {
  const quota = await getJson<Quota>(`/api/v1/namespaces/${line.dataset["quota"]}/quota`).catch(() => null);
  if (!quota) return;
  for (const item of line.querySelectorAll<HTMLElement>("[data-resource]")) {
    const name = item.dataset["resource"] ?? "";
    const used = quota.used[name] ?? 0;
    const limit = quota.limits[name] ?? null;
    const words = name === "memory" ? bytes : (value: number): string => String(Number(value.toFixed(1)));
    (item.querySelector("[data-amount]") as HTMLElement).textContent = limit === null ? words(used) : `${used === 0 ? "0" : words(used)} / ${words(limit)}`;
    const meter = item.querySelector("meter") as HTMLMeterElement;
    meter.hidden = limit === null;
    meter.max = limit || 1;
    meter.high = (limit || 1) * 0.85;
    meter.value = used;
  }
}

const PARTS: [string, () => Promise<unknown>][] = [
  ["metric-chart", () => import("./elements/metric-chart")],
  ["cluster-chart", () => import("./elements/cluster-chart")],
  ["log-view", () => import("./elements/log-view")],
  ["live-status", () => import("./elements/live-status")],
  ["held-programs", () => import("./elements/held-programs")],
  ["look-inside", () => import("./elements/look-inside")],
  ["data-upload", () => import("./elements/data-upload")],
  ["[data-indexing]", () => import("./dataset-page")],
  ["[data-job-list]", () => import("./job-list")],
  ["form#new-job", () => import("./new-job")],
  ["[data-tab]", () => import("./job-page")],
];

startTheme();
startMenus();
startShortcuts();
startAutoSubmit();
keepTimesTrue();
startQuota();
document.body.addEventListener("htmx:afterSwap", () => document.dispatchEvent(new CustomEvent("regatta:rendered")));
for (const [selector, load] of PARTS) if (document.querySelector(selector)) void load();
