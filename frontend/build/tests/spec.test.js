// test/spec.test.ts
import assert from "node:assert/strict";
import { test } from "node:test";

// src/core/spec.ts
function at(spec, path) {
  let value = spec;
  for (const key of path.split(".")) {
    if (value === null || typeof value !== "object" || Array.isArray(value)) return void 0;
    value = value[key];
  }
  return value;
}
function withValue(spec, path, value) {
  const [key, ...rest] = path.split(".");
  const copy = { ...spec };
  if (rest.length) {
    const inner = copy[key];
    const object = inner !== null && typeof inner === "object" && !Array.isArray(inner) ? inner : {};
    copy[key] = withValue(object, rest.join("."), value);
  } else if (value === "") delete copy[key];
  else copy[key] = value;
  return copy;
}
function withBounds(spec) {
  const [replicas, least, most] = ["replicas", "min", "max"].map((key) => at(spec, `roles.trainer.${key}`));
  if (typeof replicas !== "number") return spec;
  const raised = typeof most === "number" && most < replicas ? withValue(spec, "roles.trainer.max", replicas) : spec;
  return typeof least === "number" && least > replicas ? withValue(raised, "roles.trainer.min", replicas) : raised;
}
function fieldValue(text, numeric) {
  const trimmed = text.trim();
  return numeric && /^-?\d+(\.\d+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
}
function withoutFiles(spec) {
  const { files: _files, ...rest } = spec;
  return rest;
}
function placeOf(path, sentence) {
  const file = /^files\.(.+)$/.exec(path)?.[1];
  const place = /line (\d+)(?:,? column (\d+))?/i.exec(sentence);
  return file && place ? { file, line: Number(place[1]), column: Number(place[2] ?? 1) } : null;
}

// test/spec.test.ts
test("a field is read and written by its path, and nothing else changes", () => {
  const spec = { name: "a", roles: { trainer: { replicas: 1 } } };
  const changed = withValue(spec, "roles.trainer.replicas", 3);
  assert.equal(at(changed, "roles.trainer.replicas"), 3);
  assert.equal(at(spec, "roles.trainer.replicas"), 1);
  assert.equal(at(changed, "roles.pserver.cpu"), void 0);
});
test("a field that is emptied falls back to its default", () => {
  assert.deepEqual(withValue({ passes: 3, mode: "sync" }, "passes", ""), { mode: "sync" });
});
test("numbers go as numbers, and nonsense goes as it was typed for the server to refuse", () => {
  assert.equal(fieldValue(" 2 ", true), 2);
  assert.equal(fieldValue("12 potatoes", true), "12 potatoes");
  assert.equal(fieldValue("42", false), "42");
});
test("the place of a syntax error is found", () => {
  assert.deepEqual(placeOf("files.train.py", "Line 3, column 7: invalid syntax."), { file: "train.py", line: 3, column: 7 });
  assert.equal(placeOf("name", "Line 3, column 7: no."), null);
});
test("the code is not part of the YAML", () => {
  assert.deepEqual(withoutFiles({ name: "a", files: { "train.py": "" } }), { name: "a" });
});
test("more trainers than a cloned job allowed raise its bound", () => {
  const spec = { roles: { trainer: { replicas: 4, min: 1, max: 2 } } };
  assert.equal(at(withBounds(spec), "roles.trainer.max"), 4);
  assert.equal(at(withBounds(withValue(spec, "roles.trainer.min", 9)), "roles.trainer.min"), 4);
});
