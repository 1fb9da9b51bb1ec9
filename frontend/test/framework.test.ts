import assert from "node:assert/strict";
import { test } from "node:test";
import { asImage, saysNothing, useless, withoutUseless } from "../src/core/framework";

const FRAMEWORKS = {
  native: { together: false, servers: 1, may_have_servers: true, may_have_image: false },
  command: { together: false, servers: 1, may_have_servers: true, may_have_image: true },
  paddle: { together: true, servers: 0, may_have_servers: true, may_have_image: false },
  torch: { together: true, servers: 0, may_have_servers: false, may_have_image: false },
};
const WITHOUT_IMAGES = { ...FRAMEWORKS, command: { ...FRAMEWORKS.command, may_have_image: false } };
const OF_SERVERS = ["roles.pserver.replicas", "roles.pserver.cpu", "roles.pserver.memory"];
const OF_MASTER = ["mode", "elastic", "roles.trainer.max", "roles.trainer.min"];

test("every field but the image says something to the platform's own runtime, and all to a framework that nobody knows", () => {
  assert.deepEqual(useless({}, FRAMEWORKS), ["image"]);
  assert.deepEqual(useless({ framework: "" }, FRAMEWORKS), ["image"]);
  assert.deepEqual(useless({ framework: "tomorrow" }, FRAMEWORKS), []);
});

test("whose processes meet once has neither mode nor bounds", () => {
  assert.deepEqual(useless({ framework: "paddle" }, FRAMEWORKS), ["image", ...OF_MASTER]);
  assert.ok(useless({ framework: "torch" }, FRAMEWORKS).includes("roles.pserver.replicas"));
});

test("a command has them while it has parameter servers", () => {
  assert.deepEqual(useless({ framework: "command" }, FRAMEWORKS), []);
  assert.deepEqual(useless({ framework: "command", roles: { pserver: { replicas: 0 } } }, FRAMEWORKS), OF_MASTER);
});

test("only a command has an image, and only where the installation runs them", () => {
  assert.ok(!useless({ framework: "command" }, FRAMEWORKS).includes("image"));
  assert.deepEqual(useless({ framework: "command", image: "x" }, WITHOUT_IMAGES), ["image"]);
});

test("an image has neither packages nor servers nor a master, and is run as a command if nothing else is said", () => {
  const unused = [...OF_SERVERS, ...OF_MASTER, "requirements"];
  assert.deepEqual(useless({ framework: "command", image: "x" }, FRAMEWORKS), unused);
  assert.deepEqual(useless({ image: "x" }, FRAMEWORKS), unused);
  assert.deepEqual(useless({ framework: "command", image: " " }, FRAMEWORKS), []);
});

test("once an image is named, what was to be put into it goes, with the program if it is one of the files", () => {
  const roles = { trainer: { replicas: 1, max: 2 }, pserver: { replicas: 1 } };
  const spec = { framework: "command", image: "x", entrypoint: ["sh", "train.sh"], requirements: ["numpy"], roles };
  const left = { framework: "command", image: "x", roles: { trainer: { replicas: 1 }, pserver: {} } };
  assert.deepEqual(asImage(spec, FRAMEWORKS, ["train.sh"]), left);
  assert.deepEqual(asImage(spec, FRAMEWORKS, ["train.py"]), { ...left, entrypoint: ["sh", "train.sh"] });
  assert.deepEqual(asImage({ ...left, entrypoint: "python train.py" }, FRAMEWORKS, ["train.py"]), left);
  const without = { framework: "command", requirements: ["numpy"] };
  assert.equal(asImage(without, FRAMEWORKS, []), without);
});

test("what says nothing any more goes, and nothing else", () => {
  const trainer = { replicas: 2, min: 1, max: 4, cpu: 1 };
  const spec = { framework: "torch", mode: "async", elastic: true, roles: { trainer, pserver: { replicas: 1 } } };
  assert.deepEqual(withoutUseless(spec, FRAMEWORKS), {
    framework: "torch",
    roles: { trainer: { replicas: 2, cpu: 1 }, pserver: {} },
  });
  const native = { framework: "native", mode: "async" };
  assert.equal(withoutUseless(native, FRAMEWORKS), native);
});

test("a field that overrides the default is distinguished from one that does not", () => {
  const spec = { mode: "sync", elastic: false, roles: { trainer: { replicas: 2, max: 2 }, pserver: { replicas: 0, cpu: 1 } } };
  for (const path of ["mode", "elastic", "roles.trainer.max", "roles.pserver.cpu"]) assert.ok(saysNothing(spec, path), path);
  assert.ok(saysNothing({}, "roles.trainer.max"));
  assert.ok(saysNothing({ requirements: [] }, "requirements"));
  assert.ok(!saysNothing({ image: "x" }, "image"));
  assert.ok(!saysNothing({ mode: "async" }, "mode"));
  assert.ok(!saysNothing({ elastic: true }, "elastic"));
  assert.ok(!saysNothing({ roles: { trainer: { replicas: 2, max: 3 } } }, "roles.trainer.max"));
  assert.ok(!saysNothing({ roles: { pserver: { replicas: 1 } } }, "roles.pserver.replicas"));
});
