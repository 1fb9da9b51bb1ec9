/**
 * Conversion of a job specification between its three forms: the object of the API, the fields of the form (named by
 * their path, `roles.trainer.cpu`), and YAML. Pure.
 */

export type Value = string | number | boolean | null | Value[] | { [key: string]: Value };
export type Spec = { [key: string]: Value };

/** The value at a dotted path, or undefined. */
export function at(spec: Spec, path: string): Value | undefined {
  let value: Value | undefined = spec;
  for (const key of path.split(".")) {
    if (value === null || typeof value !== "object" || Array.isArray(value)) return undefined;
    value = value[key];
  }
  return value;
}

/** A copy with another value at the path; an empty text removes the key, so that the default applies. */
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

/** The bounds of the trainers follow their number, which the form asks for. */
export function withBounds(spec: Spec): Spec {
  const [replicas, least, most] = ["replicas", "min", "max"].map((key) => at(spec, `roles.trainer.${key}`));
  // An incomplete number (0, before it is 10) or an invalid one moves nothing; the server refuses it.
  if (typeof replicas !== "number" || replicas < 1) return spec;
  const raised = typeof most === "number" && most < replicas ? withValue(spec, "roles.trainer.max", replicas) : spec;
  return typeof least === "number" && least > replicas ? withValue(raised, "roles.trainer.min", replicas) : raised;
}

/**
 * The value of a field in the type of the specification. An invalid number is sent unchanged: the server reports the
 * error.
 */
export function fieldValue(text: string, numeric: boolean): Value {
  const trimmed = text.trim();
  return numeric && /^-?\d+(\.\d+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
}

/** The value of a field with commas between its items. Commas within brackets belong to the item, as in `a[b,c]`. */
export function listValue(text: string): Value {
  const items = text.split(/,(?![^[]*\])(?=\s*(?:[A-Za-z]|$))/).map((item) => item.trim());
  const named = items.filter((item) => item !== "");
  return named.length ? named : "";
}

/**
 * The value of a field with one `name: value` or `name = value` in each line. Numbers, true and false have their type;
 * quotes make a text of them. A line without a value has an empty one.
 */
export function pairsValue(text: string): Value {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  if (!lines.length) return "";
  return Object.fromEntries(
    lines.map((line) => {
      const [, name, value] = /^([^:=]*)[:=]?(.*)$/.exec(line) as unknown as [string, string, string];
      return [name.trim(), scalar(value.trim())];
    }),
  );
}

function scalar(text: string): Value {
  if (text === "true" || text === "false") return text === "true";
  if (/^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(text)) return Number(text);
  return /^(["']).*\1$/.test(text) ? text.slice(1, -1) : text;
}

/** The text of such a field. */
export function pairsText(value: Value | undefined): string {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return "";
  return Object.entries(value)
    .map(([name, each]) => `${name}: ${typeof each === "string" && scalar(each) !== each ? `"${each}"` : String(each)}`)
    .join("\n");
}

/** The specification without its code, which has an editor of its own. */
export function withoutFiles(spec: Spec): Spec {
  const { files: _files, ...rest } = spec;
  return rest;
}

/** The file of a server error: `files.train.py` is about `train.py`. */
export function fileOf(path: string): string {
  return /^files\.(.+)$/.exec(path)?.[1] ?? "";
}

/**
 * The form field that shows the errors of a path: neither the lower bound of the replicas nor a single requirement
 * or parameter has a field of its own.
 */
export function fieldOf(path: string): string {
  return path
    .replace(/^(roles\.\w+)\.min$/, "$1.replicas")
    .replace(/^requirements\.\d+$/, "requirements")
    .replace(/^params\..*$/, "params");
}
