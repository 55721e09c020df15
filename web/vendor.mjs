// Copies what the page loads, with its licences, out of node_modules into the package.
// `npm run vendor` gives the same bytes every time: versions and digests stand in the lock.
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const HERE = new URL("./node_modules/", import.meta.url);
const THERE = new URL("../src/podium/serve/web/static/vendor/", import.meta.url);
const WANTED = {
  "@dagrejs/dagre": { "dist/dagre.esm.js": "dagre.js", LICENSE: "dagre.LICENSE", "dist/dagre.esm.js.LEGAL.txt": "dagre.LEGAL.txt" },
  dompurify: { "dist/purify.min.js": "purify.js", LICENSE: "purify.LICENSE" },
  katex: { "dist/katex.min.js": "katex.js", LICENSE: "katex.LICENSE" },
  marked: { "lib/marked.esm.js": "marked.js", LICENSE: "marked.LICENSE" },
  uplot: { "dist/uPlot.iife.min.js": "uplot.js", "dist/uPlot.min.css": "uplot.css", LICENSE: "uplot.LICENSE" },
};

rmSync(THERE, { recursive: true, force: true });
mkdirSync(THERE, { recursive: true });
const lines = [];
for (const [name, files] of Object.entries(WANTED)) {
  const { version, license } = JSON.parse(readFileSync(new URL(`${name}/package.json`, HERE)));
  lines.push(`${name} ${version} (${license})`);
  for (const [from, to] of Object.entries(files)) {
    if (/\.(js|css)$/.test(to)) {
      const text = readFileSync(new URL(`${name}/${from}`, HERE), "utf8");
      writeFileSync(new URL(to, THERE), text.replace(/\n?\/\/# sourceMappingURL=\S+\s*$/, "\n"));
    } else copyFileSync(new URL(`${name}/${from}`, HERE), new URL(to, THERE));
  }
}
writeFileSync(new URL("VERSIONS", THERE), lines.join("\n") + "\n");
