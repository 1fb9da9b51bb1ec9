/**
 * The fields of a specification that apply to a framework. Those of the platform's own master and servers do not apply
 * to frameworks whose processes find one another once, at the start: their number is fixed, and each runs in its own
 * way. A custom image runs a command; nothing is put into it. Pure.
 */
import { at, withValue, type Spec, type Value } from "./spec";

export interface Framework {
  /** Its processes meet once, at the start. */
  together: boolean;
  /** The default number of parameter servers. */
  servers: number;
  may_have_servers: boolean;
  /** Whether it can run a custom image unchanged, here. */
  may_have_image: boolean;
}
export type Frameworks = Record<string, Framework>;

const OF_SERVERS = ["roles.pserver.replicas", "roles.pserver.cpu", "roles.pserver.memory"];
const OF_MASTER = ["mode", "elastic", "roles.trainer.max", "roles.trainer.min"];
const NATIVE = "native";
const COMMAND = "command";

/** The framework of a job; a custom image is run unchanged. */
export function frameworkOf(spec: Spec): string {
  return String(at(spec, "framework") || (hasImage(spec) ? COMMAND : NATIVE));
}

export function hasImage(spec: Spec): boolean {
  return String(at(spec, "image") ?? "").trim() !== "";
}

/** Paths of fields that do not apply to the job as specified. For an unknown framework all fields apply. */
export function useless(spec: Spec, frameworks: Frameworks): string[] {
  const row = frameworks[frameworkOf(spec)];
  if (!row) return [];
  if (hasImage(spec) && row.may_have_image) return [...OF_SERVERS, ...OF_MASTER, "requirements"];
  const image = row.may_have_image ? [] : ["image"];
  const servers = at(spec, "roles.pserver.replicas") ?? row.servers;
  return [...image, ...(row.may_have_servers ? [] : OF_SERVERS), ...(row.together || servers === 0 ? OF_MASTER : [])];
}

/**
 * The specification with a custom image: without the parts that would have been put into it, and without an entry point
 * that names one of them.
 */
export function asImage(spec: Spec, frameworks: Frameworks, files: string[]): Spec {
  if (!hasImage(spec)) return spec;
  const left = withoutUseless(spec, frameworks);
  const program = at(left, "entrypoint");
  const words = Array.isArray(program) ? program.map(String) : String(program ?? "").split(/\s+/);
  return words.some((word) => files.includes(word)) ? withValue(left, "entrypoint", "") : left;
}

/** The specification without the fields that do not apply. */
export function withoutUseless(spec: Spec, frameworks: Frameworks): Spec {
  return useless(spec, frameworks).reduce((left, path) => withoutPath(left, path), spec);
}

function withoutPath(spec: Spec, path: string): Spec {
  return at(spec, path) === undefined ? spec : withValue(spec, path, "");
}

/** Whether a field has its default value: another value is shown, so that its error has a place. */
export function saysNothing(spec: Spec, path: string): boolean {
  const value = at(spec, path);
  if (value === undefined || value === "" || value === null || (Array.isArray(value) && !value.length)) return true;
  const usual: Value = USUAL[path] ?? at(spec, "roles.trainer.replicas") ?? 1;
  return value === usual || (path.startsWith("roles.pserver.") && at(spec, "roles.pserver.replicas") === 0);
}

const USUAL: Record<string, Value> = { mode: "sync", elastic: false, "roles.pserver.replicas": 0 };
