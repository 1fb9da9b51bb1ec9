/** The results of a fault injection, from the timeline. Pure. */
import type { JobEvent } from "./job";

/** A kill, as text; `back` once the killed replica works again: then the text says after how long. */
export interface Survival {
  time: string;
  text: string;
  back: boolean;
}

/** The kills of an attempt, the newest first. */
export function survivals(events: JobEvent[], attempt: number): Survival[] {
  const ours = events.filter((event) => event.attempt === attempt && event.replica !== "");
  return ours.flatMap((kill, i) => (kill.kind === "rehearsal" ? [survival(kill, ours.slice(i + 1))] : [])).reverse();
}

function survival(kill: JobEvent, later: JobEvent[]): Survival {
  const next = later.find((event) => event.replica === kill.replica && (event.kind === "registered" || event.kind === "rehearsal"));
  const back = next?.kind === "registered";
  return { time: kill.time, text: back ? next.text : kill.text, back };
}
