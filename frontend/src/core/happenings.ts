/** The kinds of timeline events: each has a label, a symbol and a colour. */
import { gettext } from "./i18n";
import type { JobEvent } from "./job";

export type Happening = "joined" | "left" | "killed" | "scaled" | "elastic" | "restarted" | "recovered" | "rehearsal" | "checkpoint" | "store" | "member" | "task" | "warning";

const KINDS: Record<string, Happening> = {
  registered: "joined",
  exited: "left",
  lost: "killed",
  scaled: "scaled",
  elastic: "elastic",
  restarted: "restarted",
  recovery: "recovered",
  rehearsal: "rehearsal",
  checkpoint: "checkpoint",
  store: "store",
  member: "member",
  task: "task",
  quarantine: "warning",
  warning: "warning",
  failed: "warning",
};

const LABELS: Record<Happening, () => string> = {
  joined: () => gettext("Joined"),
  left: () => gettext("Left"),
  killed: () => gettext("Killed"),
  scaled: () => gettext("Scaled"),
  elastic: () => gettext("Elastic"),
  restarted: () => gettext("Restarted"),
  recovered: () => gettext("Recovered"),
  rehearsal: () => gettext("Fault injection"),
  checkpoint: () => gettext("Checkpoint"),
  store: () => gettext("Coordination"),
  member: () => gettext("Trainers"),
  task: () => gettext("Task"),
  warning: () => gettext("Warning"),
};

/** In order; null for a change of the job's state, and for an unknown kind. */
export function happeningsOf(events: JobEvent[]): (Happening | null)[] {
  return events.map((event, i) => (isKilled(event, events.slice(i + 1)) ? "killed" : (KINDS[event.kind] ?? null)));
}

/** The exit of a replica that is started again in its place is not counted as leaving. */
function isKilled({ kind, replica, attempt }: JobEvent, later: JobEvent[]): boolean {
  if (kind === "rehearsal") return replica !== "";
  const next = later.find((event) => event.replica === replica && event.attempt === attempt && event.kind !== "rehearsal");
  return kind === "exited" && next?.kind === "restarted";
}

export function happeningLabel(happening: Happening): string {
  return LABELS[happening]();
}
