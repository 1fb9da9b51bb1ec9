/** The shapes that the API and the socket share (design of the HTTP contract), and a job's states in words. */
import { gettext } from "./i18n";

export interface Replica {
  name: string;
  role: string;
  index: number;
  /** How often it was started in this attempt. */
  start_number: number;
  state: string;
  why: string;
}

/** Failure as it is rehearsed: every so often one of the role `kill` is killed; `done` is how many were. */
export interface Rehearsal {
  kill: string;
  every: string;
  by: string;
  done: number;
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
  /** How many trainers were last wished for; null: as many as the specification says. */
  trainers: number | null;
  /** The same of parameter servers, from the next attempt on. */
  pservers: number | null;
  /** The platform chooses the number of trainers. */
  elastic: boolean;
  /** Of one job: why an elastic one has the number of trainers that it has; else empty. */
  sizing?: string;
  rehearsal: Rehearsal | null;
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
  /** NaN and the infinities come as text. */
  value: number | string | null;
}

/** A change of state (`kind` is "state") or something that happened to a replica. */
export interface JobEvent {
  /** Its place in the timeline, `microseconds-table-row`: the cursor of what is older. */
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
};

export function stateLabel(state: string): string {
  return LABELS[state]?.() ?? state;
}

/** Times come as ISO text or as seconds since 1970. */
export function dateOf(time: string | number): Date {
  return typeof time === "number" ? new Date(time * 1000) : new Date(time);
}
