import assert from "node:assert/strict";
import { test } from "node:test";
import { at, fieldValue, fieldOf, fileOf, listValue, pairsText, pairsValue, withBounds, withoutFiles, withValue } from "../src/core/spec";

test("a field is read and written by its path, and nothing else changes", () => {
  const spec = { name: "a", roles: { trainer: { replicas: 1 } } };
  const changed = withValue(spec, "roles.trainer.replicas", 3);
  assert.equal(at(changed, "roles.trainer.replicas"), 3);
  assert.equal(at(spec, "roles.trainer.replicas"), 1);
  assert.equal(at(changed, "roles.pserver.cpu"), undefined);
});

test("a field that is emptied falls back to its default", () => {
  assert.deepEqual(withValue({ passes: 3, mode: "sync" }, "passes", ""), { mode: "sync" });
});

test("numbers go as numbers, and nonsense goes as it was typed for the server to refuse", () => {
  assert.equal(fieldValue(" 2 ", true), 2);
  assert.equal(fieldValue("12 potatoes", true), "12 potatoes");
  assert.equal(fieldValue("42", false), "42");
});

test("an error about a file is distinguished from one about a field", () => {
  assert.deepEqual([fileOf("files.src/train.py"), fileOf("files"), fileOf("name")], ["src/train.py", "", ""]);
});

test("the lower bound of the replicas is complained of where the replicas are", () => {
  assert.equal(fieldOf("roles.trainer.min"), "roles.trainer.replicas");
  assert.equal(fieldOf("roles.trainer.max"), "roles.trainer.max");
  assert.equal(fieldOf("roles.trainer.memory"), "roles.trainer.memory");
});

test("the code is not part of the YAML", () => {
  assert.deepEqual(withoutFiles({ name: "a", files: { "train.py": "" } }), { name: "a" });
});

test("more trainers than a cloned job allowed raise its bound", () => {
  const spec = { roles: { trainer: { replicas: 4, min: 1, max: 2 } } };
  assert.equal(at(withBounds(spec), "roles.trainer.max"), 4);
  assert.equal(at(withBounds(withValue(spec, "roles.trainer.min", 9)), "roles.trainer.min"), 4);
});

test("trainers that cannot be leave the bounds as they are", () => {
  const spec = { roles: { trainer: { replicas: 0, min: 1, max: 2 } } };
  assert.deepEqual(withBounds(spec), spec);
});

test("packages stand with commas between them, and a comma within one stays", () => {
  assert.deepEqual(listValue("pandas>=2,<3, numpy<2,fsspec[s3,http]"), ["pandas>=2,<3", "numpy<2", "fsspec[s3,http]"]);
  assert.deepEqual(listValue(" torch==2.13.0, "), ["torch==2.13.0"]);
  assert.equal(listValue("  "), "");
});

test("a package that is complained of is complained of where the packages are", () => {
  assert.equal(fieldOf("requirements.3"), "requirements");
});

test("lines of a field become parameters with their types, and back", () => {
  const params = { lr: 0.001, "adam.beta": 0.9, nesterov: true, name: "a: b", version: "1.0", sign: -2 };
  assert.deepEqual(
    pairsValue('lr: 1e-3\nadam.beta=0.9\n\nnesterov: true\nname: a: b\nversion: "1.0"\nsign = -2'),
    params,
  );
  assert.deepEqual(pairsValue(pairsText(params)), params);
  assert.equal(pairsValue(" \n"), "");
  assert.deepEqual(pairsValue("lr"), { lr: "" });
  assert.equal(pairsText(undefined), "");
});

test("errors of a single parameter are shown at the field of all", () => {
  assert.equal(fieldOf("params.lr"), "params");
});
