/** How many replicas of a role a job has been asked to have, and what a person may choose. Pure. */
import { fill, gettext } from "./i18n";
import type { Job } from "./job";

export interface Staffing {
  wanted: number;
  min: number;
  max: number;
  /** What the reader should know beside the number. */
  note: string;
}

/** Trainers come and go while the job runs, between the bounds of its specification. */
export function trainersOf({ state, trainers, spec }: Job): Staffing | null {
  const { replicas, min, max } = spec.roles.trainer;
  if (state !== "RUNNING" || min === max) return null;
  return { wanted: trainers ?? replicas, min, max, note: fill(gettext("{least} to {most}"), { least: min, most: max }) };
}

/** Parameter servers are counted anew with each attempt. How many are too many the portal says. */
export function pserversOf({ state, pservers, replicas, spec }: Job): Staffing | null {
  if (state === "SUCCEEDED") return null;
  // Who began without any, as PyTorch's jobs do, has no use for them.
  if (spec.roles.pserver.replicas === 0) return null;
  const wanted = pservers ?? spec.roles.pserver.replicas;
  const present = replicas.filter(({ role }) => role === "pserver").length;
  const differs = present > 0 && present !== wanted;
  const note = differs ? fill(gettext("from the next attempt on; {present} now"), { present }) : gettext("from the next attempt on");
  return { wanted, min: 1, max: Infinity, note };
}
