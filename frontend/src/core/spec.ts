/**
 * A job specification between its three forms: the object that the API takes, the fields of the form (named by their path,
 * `roles.trainer.cpu`), and YAML. Pure.
 */

export type Value = string | number | boolean | null | Value[] | { [key: string]: Value };
export type Spec = { [key: string]: Value };

/** What stands at a dotted path, or undefined. */
export function at(spec: Spec, path: string): Value | undefined {
  let value: Value | undefined = spec;
  for (const key of path.split(".")) {
    if (value === null || typeof value !== "object" || Array.isArray(value)) return undefined;
    value = value[key];
  }
  return value;
}

/** A copy with another value at the path; an empty text takes the key away, so that the default counts. */
export function withValue(spec: Spec, path: string, value: Value): Spec {
  const [key, ...rest] = path.split(".") as [string, ...string[]];
  const copy: Spec = { ...spec };
  if (rest.length) {
    const inner = copy[key];
    const object = inner !== null && typeof inner === "object" && !Array.isArray(inner) ? inner : {};
    copy[key] = withValue(object, rest.join("."), value);
  } else if (value === "") delete copy[key];
  else copy[key] = value;
  return copy;
}

/** The bounds of the trainers follow their number, which is what the form asks for. */
export function withBounds(spec: Spec): Spec {
  const [replicas, least, most] = ["replicas", "min", "max"].map((key) => at(spec, `roles.trainer.${key}`));
  // A number on its way (0, before it is 10) or nonsense is the server's to refuse, and moves nothing.
  if (typeof replicas !== "number" || replicas < 1) return spec;
  const raised = typeof most === "number" && most < replicas ? withValue(spec, "roles.trainer.max", replicas) : spec;
  return typeof least === "number" && least > replicas ? withValue(raised, "roles.trainer.min", replicas) : raised;
}

/** What a field holds, as the specification wants it. A number that is none goes as it is: the server says what is wrong. */
export function fieldValue(text: string, numeric: boolean): Value {
  const trimmed = text.trim();
  return numeric && /^-?\d+(\.\d+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
}

/** What a field with commas between its items holds. Commas within brackets belong to the item, as in `a[b,c]`. */
export function listValue(text: string): Value {
  const items = text.split(/,(?![^[]*\])(?=\s*(?:[A-Za-z]|$))/).map((item) => item.trim());
  const named = items.filter((item) => item !== "");
  return named.length ? named : "";
}

/** The specification without its code, which has an editor of its own. */
export function withoutFiles(spec: Spec): Spec {
  const { files: _files, ...rest } = spec;
  return rest;
}

/** The file that a complaint of the server is about: `files.train.py` is about `train.py`. */
export function fileOf(path: string): string {
  return /^files\.(.+)$/.exec(path)?.[1] ?? "";
}

/** The field of the form that shows the complaints of a path: neither the lower bound of the replicas nor a single
 * requirement has one of its own. */
export function fieldOf(path: string): string {
  return path.replace(/^(roles\.\w+)\.min$/, "$1.replicas").replace(/^requirements\.\d+$/, "requirements");
}
