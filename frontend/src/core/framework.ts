/**
 * Which fields of a specification say something to a framework. Those of the platform's own master and servers say nothing
 * where processes find one another once, when they start: their number stays, and each runs in its own way. An image of
 * its own is for commands; nothing is put into it. Pure.
 */
import { at, withValue, type Spec, type Value } from "./spec";

export interface Framework {
  /** Its processes meet once, at the start. */
  together: boolean;
  /** How many parameter servers there are if nothing is said. */
  servers: number;
  may_have_servers: boolean;
  /** Whether it can run an image as it is, here. */
  may_have_image: boolean;
}
export type Frameworks = Record<string, Framework>;

const OF_SERVERS = ["roles.pserver.replicas", "roles.pserver.cpu", "roles.pserver.memory"];
const OF_MASTER = ["mode", "elastic", "roles.trainer.max", "roles.trainer.min"];
const NATIVE = "native";
const COMMAND = "command";

/** What a job is written for; an image is run as it is. */
export function frameworkOf(spec: Spec): string {
  return String(at(spec, "framework") || (hasImage(spec) ? COMMAND : NATIVE));
}

export function hasImage(spec: Spec): boolean {
  return String(at(spec, "image") ?? "").trim() !== "";
}

/** Paths of fields that the job as it is described has no use for. One of a framework that is not known has one for all. */
export function useless(spec: Spec, frameworks: Frameworks): string[] {
  const row = frameworks[frameworkOf(spec)];
  if (!row) return [];
  if (hasImage(spec) && row.may_have_image) return [...OF_SERVERS, ...OF_MASTER, "requirements"];
  const image = row.may_have_image ? [] : ["image"];
  const servers = at(spec, "roles.pserver.replicas") ?? row.servers;
  return [...image, ...(row.may_have_servers ? [] : OF_SERVERS), ...(row.together || servers === 0 ? OF_MASTER : [])];
}

/** Once an image is named: without what would have been put into it, and what is started of that. */
export function asImage(spec: Spec, frameworks: Frameworks, files: string[]): Spec {
  if (!hasImage(spec)) return spec;
  const left = withoutUseless(spec, frameworks);
  const program = at(left, "entrypoint");
  const words = Array.isArray(program) ? program.map(String) : String(program ?? "").split(/\s+/);
  return words.some((word) => files.includes(word)) ? withValue(left, "entrypoint", "") : left;
}

/** Without them. */
export function withoutUseless(spec: Spec, frameworks: Frameworks): Spec {
  return useless(spec, frameworks).reduce((left, path) => withoutPath(left, path), spec);
}

function withoutPath(spec: Spec, path: string): Spec {
  return at(spec, path) === undefined ? spec : withValue(spec, path, "");
}

/** Whether a field says what counts anyhow: one that says more is shown, so that what is wrong with it has its place. */
export function saysNothing(spec: Spec, path: string): boolean {
  const value = at(spec, path);
  if (value === undefined || value === "" || value === null || (Array.isArray(value) && !value.length)) return true;
  const usual: Value = USUAL[path] ?? at(spec, "roles.trainer.replicas") ?? 1;
  return value === usual || (path.startsWith("roles.pserver.") && at(spec, "roles.pserver.replicas") === 0);
}

const USUAL: Record<string, Value> = { mode: "sync", elastic: false, "roles.pserver.replicas": 0 };
