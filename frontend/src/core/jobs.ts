/** Changes of the jobs of the page's namespace: one subscription for all listeners. */
import type { Job } from "./job";
import { theLive } from "./live";

export interface Follower {
  /** `first`: the existing jobs; later those that changed. */
  onJobs: (jobs: Job[], first: boolean) => void;
  /** While there is no socket, called periodically: a job may have changed. */
  look: () => void;
}

const followers: Follower[] = [];
const known = new Map<string, Job>();
let begun = false;

function take(jobs: Job[]): void {
  const first = !begun;
  begun = true;
  for (const job of jobs) known.set(job.id, job);
  for (const follower of followers) follower.onJobs(jobs, first);
}

export function followJobs(namespace: string, follower: Follower): void {
  followers.push(follower);
  if (begun) follower.onJobs([...known.values()], true);
  if (followers.length > 1) return;
  theLive().subscribe({
    stream: "jobs",
    namespace,
    onFrame: (frame) => frame.t === "jobs" && take(frame.jobs),
    poll: async () => followers.forEach(({ look }) => look()),
  });
}
