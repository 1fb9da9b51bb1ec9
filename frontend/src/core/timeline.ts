/** The job's timeline as it grows: asked for when something may have happened, once for all who follow it. */
import { embedded } from "./dom";
import { getJson } from "./http";
import type { Job, JobEvent } from "./job";

type Follower = (events: JobEvent[]) => void;

const PAUSE_MS = 500;
const followers: Follower[] = [];
let known: JobEvent[] | null = null;
let asking = false;
let wanted = false;

/** Calls with the whole timeline now and whenever the job was heard of. */
export function followTimeline(follower: Follower): void {
  followers.push(follower);
  if (known) follower(known);
  if (followers.length > 1) return;
  document.addEventListener("regatta:heard", () => void look());
  void look();
}

/** However often it is wished for, one question is under way, and the last wish is granted. */
async function look(): Promise<void> {
  wanted = true;
  if (asking) return;
  asking = true;
  while (wanted) {
    wanted = false;
    await ask();
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  asking = false;
}

async function ask(): Promise<void> {
  const job = embedded<Job>("job-data");
  const answer = await getJson<{ events: JobEvent[] }>(`/api/v1/jobs/${job?.id}/events`).catch(() => null);
  if (!answer) return;
  known = answer.events;
  for (const follower of followers) follower(known);
}
