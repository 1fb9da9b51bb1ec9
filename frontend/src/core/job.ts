/** Types shared by the API and the socket (design of the HTTP contract), and labels of a job's states. */
import { gettext } from "./i18n";

/** A program that is held at its exception. */
export interface Held {
  exception: string;
  until: string;
}

export interface Replica {
  name: string;
  role: string;
  index: number;
  /** How often it was started in this attempt. */
  start_number: number;
  state: string;
  why: string;
  held: Held | null;
}

/** Fault injection: periodically one replica of the role `kill` is killed; `done` is how many were. */
export interface Rehearsal {
  kill: string;
  every: string;
  by: string;
  done: number;
}

/** The job is paused: `done` once all programs stand. */
export interface Pause {
  done: boolean;
  since: string;
  by: string;
}

export interface Job {
  id: string;
  name: string;
  namespace: string;
  owner?: string;
  state: string;
  reason: string;
  why: string;
  attempt: number;
  created: string;
  changed?: string;
  started: string | null;
  finished: string | null;
  /** The last requested number of trainers; null: the number of the specification. */
  trainers: number | null;
  /** The same for parameter servers, from the next attempt on. */
  pservers: number | null;
  /** The platform chooses the number of trainers. */
  elastic: boolean;
  /** For a single job: why an elastic one has its current number of trainers; else empty. */
  sizing?: string;
  rehearsal: Rehearsal | null;
  pause: Pause | null;
  replicas: Replica[];
  spec: { roles: { trainer: { replicas: number; min: number; max: number }; pserver: { replicas: number } } };
}

export interface LogLine {
  seq: number;
  time: string | number;
  replica: string;
  stream: string;
  text: string;
}

export interface MetricPoint {
  seq: number;
  time: string | number;
  attempt: number;
  replica: string;
  step: number;
  key: string;
  /** NaN and the infinities are sent as text. */
  value: number | string | null;
}

/** A change of state (`kind` is "state") or an event of a replica. */
export interface JobEvent {
  /** Its place in the timeline, `microseconds-table-row`: the cursor for older entries. */
  id: string;
  time: string;
  attempt: number;
  kind: string;
  state: string;
  replica: string;
  text: string;
  actor: string;
}

const TERMINAL = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);

export function isTerminal(state: string): boolean {
  return TERMINAL.has(state);
}

const LABELS: Record<string, () => string> = {
  QUEUED: () => gettext("Queued"),
  ADMITTED: () => gettext("Admitted"),
  BUILDING: () => gettext("Building"),
  LAUNCHING: () => gettext("Launching"),
  REGISTERING: () => gettext("Registering"),
  RUNNING: () => gettext("Running"),
  STOPPING: () => gettext("Stopping"),
  SUCCEEDED: () => gettext("Succeeded"),
  FAILED: () => gettext("Failed"),
  CANCELLED: () => gettext("Cancelled"),
  waiting: () => gettext("waiting"),
  starting: () => gettext("starting"),
  registered: () => gettext("registered"),
  exited: () => gettext("exited"),
  lost: () => gettext("lost"),
  held: () => gettext("held"),
};

export function stateLabel(state: string): string {
  return LABELS[state]?.() ?? state;
}

/** Times are ISO text or seconds since 1970. */
export function dateOf(time: string | number): Date {
  return typeof time === "number" ? new Date(time * 1000) : new Date(time);
}
