// Bundles the page into src/torchport/report/page: page.js, page.css, and the licences of what is in it.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync, existsSync, mkdirSync } from "node:fs";
import { join, relative } from "node:path";

const here = import.meta.dirname;
const out = join(here, "..", "src", "torchport", "report", "page");

/** Returns the digest of all that the bundle is made from; a test compares it with the one in the bundle. */
function digestOfSources() {
  const files = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(here, join(entry.parentPath, entry.name)).split("\\").join("/"));
  const digest = createHash("sha256");
  for (const name of [...files, "build.mjs", "package.json", "package-lock.json", "tsconfig.json"].sort()) {
    digest.update(`${name}\0`).update(readFileSync(join(here, name))).update("\0");
  }
  return digest.digest("hex");
}

const result = await build({
  absWorkingDir: here,
  entryPoints: { page: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  write: false,
  metafile: true,
  format: "iife",
  target: "es2022",
  charset: "ascii",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
});

mkdirSync(out, { recursive: true });
for (const file of result.outputFiles) {
  const name = file.path.endsWith(".css") ? "page.css" : "page.js";
  let text = file.text;
  if (/<\/(script|style)/i.test(text)) throw new Error(`${name} would end its own element`);
  if (name === "page.js") text = `/* sources: sha256 ${digestOfSources()} */\n${text}`;
  writeFileSync(join(out, name), text);
}

const packages = new Set();
for (const input of Object.keys(result.metafile.inputs)) {
  const found = /^node_modules\/((@[^/]+\/)?[^/]+)\//.exec(input);
  if (found) packages.add(found[1]);
}
const notices = [...packages].sort().map((name) => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = ["LICENSE", "LICENSE.md", "LICENSE.txt", "license"].find((each) => existsSync(join(folder, each)));
  if (!file) throw new Error(`${name} has no licence file`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
});
writeFileSync(join(out, "LICENSES.txt"), `The page holds these packages:\n\n${notices.join(`\n${"-".repeat(78)}\n\n`)}`);
