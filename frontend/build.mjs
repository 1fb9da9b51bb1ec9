// Builds the pages' scripts into portal/static/portal/dist (or the directory after --out), deterministically:
// the same sources and lock file give the same bytes, which scripts/check_frontend.sh relies on.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const argument = (name) => {
  const at = process.argv.indexOf(name);
  return at < 0 ? undefined : process.argv[at + 1];
};

/**
 * xterm.js adds style elements without a nonce and sets style attributes as text, which the content security policy
 * refuses. Its module gets a document of its own, whose elements do neither.
 */
const styledXterm = {
  name: "styled-xterm",
  setup: ({ onLoad }) =>
    onLoad({ filter: /@xterm\/xterm\/lib\/xterm\.mjs$/ }, ({ path }) => {
      const source = readFileSync(path, "utf8");
      if (!source.includes("window.document")) throw new Error("xterm.js has changed: check its use of the document");
      const place = join(here, "src", "core", "xterm-document.ts");
      const head = `import { styledDocument } from ${JSON.stringify(place)}; const document = styledDocument();`;
      return { contents: head + source.replaceAll("window.document", "document"), loader: "js" };
    }),
};

const shared = { bundle: true, format: "esm", logLevel: "warning", charset: "utf8", loader: { ".css": "text" }, plugins: [styledXterm], absWorkingDir: here };

async function buildTests() {
  const outdir = join(here, "build", "tests");
  rmSync(outdir, { recursive: true, force: true });
  const entryPoints = readdirSync(join(here, "test")).map((name) => join("test", name));
  await build({ ...shared, entryPoints, outdir, platform: "node", target: "node20" });
}

async function buildPages(outdir) {
  rmSync(outdir, { recursive: true, force: true });
  mkdirSync(outdir, { recursive: true });
  const result = await build({
    ...shared,
    // The worker is loaded by its name, from beside the other files.
    entryPoints: ["src/main.ts", "src/hash-worker.ts"],
    outdir,
    splitting: true,
    minify: true,
    target: "es2022",
    chunkNames: "[name]-[hash]",
    legalComments: "none",
    metafile: true,
  });
  writeFileSync(join(outdir, "LICENSES.txt"), licences(Object.keys(result.metafile.inputs)));
  for (const name of readdirSync(outdir).filter((name) => name.endsWith(".js"))) pack(join(outdir, name));
}

/** Builds JupyterLab's extension: one file, and the description by which JupyterLab finds it. */
async function buildLabextension(outdir) {
  rmSync(outdir, { recursive: true, force: true });
  const outfile = join(outdir, "static", "remoteEntry.js");
  await build({ ...shared, entryPoints: ["notebook/index.ts"], outfile, format: "iife", minify: true, target: "es2022" });
  const load = { load: "static/remoteEntry.js", extension: "./extension" };
  const about = { name: "regatta-notebook", version: "1.0.0", private: true, jupyterlab: { extension: true, _build: load } };
  writeFileSync(join(outdir, "package.json"), `${JSON.stringify(about, null, 2)}\n`);
}

/** Puts a packed copy beside a file: the portal sends it to browsers that take one. */
function pack(path) {
  const packed = gzipSync(readFileSync(path), { level: 9 });
  // The tenth byte names the operating system that packed it; 255 is "unknown".
  packed[9] = 255;
  writeFileSync(`${path}.gz`, packed);
}

/** The licence texts of every package whose code went into the bundle. */
function licences(inputs) {
  const packages = new Set();
  for (const input of inputs) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (found) packages.add(found[1]);
  }
  return [...packages].sort().map(licence).join("\n");
}

function licence(name) {
  const folder = join(here, "node_modules", name);
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  const text = file ? readFileSync(join(folder, file), "utf8").trim() : "See the package.";
  return `${name} ${version}\n\n${text}\n\n${"-".repeat(80)}\n`;
}

if (process.argv.includes("--tests")) await buildTests();
else {
  const statics = join(here, "..", "portal", "static", "portal");
  const out = argument("--out");
  await buildPages(out ?? join(statics, "dist"));
  const labextensions = out ? `${out}-labextensions` : join(here, "..", "runtime", "notebook", "labextensions");
  await buildLabextension(join(labextensions, "regatta-notebook"));
  if (!out) pack(join(statics, "app.css"));
}
