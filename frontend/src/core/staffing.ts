/** The requested number of replicas of a role, and the numbers that a person may choose. Pure. */
import { fill, gettext } from "./i18n";
import type { Job } from "./job";

export interface Staffing {
  desired: number;
  min: number;
  max: number;
  /** A hint for the reader beside the number. */
  note: string;
}

/** Trainers join and leave while the job runs, between the bounds of its specification. */
export function trainersOf({ state, trainers, spec }: Job): Staffing | null {
  const { replicas, min, max } = spec.roles.trainer;
  if (state !== "RUNNING" || min === max) return null;
  return { desired: trainers ?? replicas, min, max, note: fill(gettext("{least} to {most}"), { least: min, most: max }) };
}

/** The number of parameter servers applies from the next attempt on. The portal reports the maximum. */
export function pserversOf({ state, pservers, replicas, spec }: Job): Staffing | null {
  if (state === "SUCCEEDED") return null;
  // A job that began without any, such as PyTorch's, does not use them.
  if (spec.roles.pserver.replicas === 0) return null;
  const desired = pservers ?? spec.roles.pserver.replicas;
  const present = replicas.filter(({ role }) => role === "pserver").length;
  const differs = present > 0 && present !== desired;
  const note = differs ? fill(gettext("from the next attempt on; {present} now"), { present }) : gettext("from the next attempt on");
  return { desired, min: 1, max: Infinity, note };
}
