/** The number of running trainers over time, from the timeline of a job. Pure. */
import { dateOf, type JobEvent } from "./job";

/** The number from `at` on (seconds since 1970); `time` is that of the event. */
export interface Count {
  at: number;
  time: string;
  trainers: number;
}

const CAME = "registered";
const WENT = new Set(["exited", "lost", "restarted"]);

/** Whether an event changes the set of running trainers. */
export function movesTrainers(event: JobEvent): boolean {
  return event.replica.startsWith("trainer-") && (event.kind === CAME || WENT.has(event.kind));
}

/** The changes of one attempt, in order. */
export function trainersOverTime(events: JobEvent[], attempt: number): Count[] {
  const there = new Set<string>();
  const counts: Count[] = [];
  for (const event of events) {
    if (event.attempt !== attempt || !movesTrainers(event)) continue;
    if (event.kind === CAME) there.add(event.replica);
    else there.delete(event.replica);
    if (there.size !== (counts.at(-1)?.trainers ?? 0)) counts.push({ at: dateOf(event.time).getTime() / 1000, time: event.time, trainers: there.size });
  }
  return counts;
}
