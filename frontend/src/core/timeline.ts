/** The job's timeline as it grows: requested when there may be a new event, once for all listeners. */
import { embedded } from "./dom";
import { getJson } from "./http";
import type { Job, JobEvent } from "./job";

type Follower = (events: JobEvent[]) => void;

const PAUSE_MS = 500;
const followers: Follower[] = [];
/** By id: the newest page, and the older ones that were requested. */
let known: Map<string, JobEvent> | null = null;
let older: string | null = null;
let unfolded = false;
let asking = false;
let requested = false;

/** Calls the listener with the loaded entries, now and after each message about the job. */
export function followTimeline(follower: Follower): void {
  followers.push(follower);
  if (known) follower(inOrder(known));
  if (followers.length > 1) return;
  document.addEventListener("regatta:heard", () => void look());
  void look();
}

/** However often it is called, one request is in progress, followed by one more for the last call. */
async function look(): Promise<void> {
  requested = true;
  if (asking) return;
  asking = true;
  while (requested) {
    requested = false;
    await ask();
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  asking = false;
}

interface Page {
  events: JobEvent[];
  older: string | null;
}

function pageBefore(cursor: string | null): Promise<Page | null> {
  const job = embedded<Job>("job-data");
  const query = cursor ? `?before=${encodeURIComponent(cursor)}` : "";
  return getJson<Page>(`/api/v1/jobs/${job?.id}/events${query}`).catch(() => null);
}

async function ask(): Promise<void> {
  const page = await pageBefore(null);
  if (!page) return;
  // Requested older entries stay; otherwise only the newest page is held, however long the job runs.
  if (!unfolded) older = page.older;
  take(unfolded ? known : null, page);
}

/** Whether there are more entries than the loaded ones. */
export function hasOlder(): boolean {
  return older !== null;
}

/** Loads the page before the loaded entries. */
export async function loadOlder(): Promise<void> {
  const page = older ? await pageBefore(older) : null;
  if (!page) return;
  unfolded = true;
  older = page.older;
  take(known, page);
}

function take(before: Map<string, JobEvent> | null, page: Page): void {
  known = before ?? new Map<string, JobEvent>();
  for (const event of page.events) known.set(event.id, event);
  const events = inOrder(known);
  for (const follower of followers) follower(events);
}

/** Entries in the order of the timeline. */
export function inOrder(entries: Map<string, JobEvent>): JobEvent[] {
  const keyed = [...entries.values()].map((event) => ({ event, place: event.id.split("-").map(Number) }));
  keyed.sort((a, b) => a.place.map((part, i) => part - (b.place[i] ?? 0)).find((difference) => difference !== 0) ?? 0);
  return keyed.map(({ event }) => event);
}
