// The frame: which page an address means, the bar above it, and who is asking.
import { forgetKey, hasKey, me as whoever } from "./api.js";
import { freshHues, h, problem } from "./dom.js";

const PAGES = {
  ask: ["Ask", () => import("./ask.js").then((m) => m.ask)],
  runs: ["Runs", () => import("./runs.js").then((m) => m.runs)],
  pool: ["Pool", () => import("./pool.js").then((m) => m.pool)],
  evaluations: ["Evaluations", () => import("./evaluations.js").then((m) => m.evaluations)],
  training: ["Training", () => import("./training.js").then((m) => m.training)],
  spend: ["Spend", () => import("./spend.js").then((m) => m.spend)],
};
const HIDDEN = { compare: ["Compare", () => import("./compare.js").then((m) => m.compare)] };

const main = document.getElementById("main");
const nav = document.getElementById("nav");
let leaving = new AbortController();

nav.append(...Object.entries(PAGES).map(([id, [name]]) => h("a", { href: `#/${id}` }, name)));

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [id, ...rest] = path.split("/").map(decodeURIComponent);
  const [name, load] = { ...PAGES, ...HIDDEN }[id] ?? PAGES.ask;
  document.title = `${name} · Podium`;
  for (const link of nav.children) {
    const here = link.getAttribute("href") === `#/${id || "ask"}` || (id === "compare" && link.textContent === "Runs");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.querySelectorAll("dialog.drawer").forEach((d) => d.close());
  try {
    const [page, me] = await Promise.all([load(), whoever()]);
    freshHues(me.workers);
    if (!signal.aborted) await page(main, new URLSearchParams(query), signal, rest);
  } catch (error) {
    if (!signal.aborted) main.replaceChildren(h("h1", {}, name), problem(error));
  }
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("podium-theme", root.dataset.theme);
  dispatchEvent(new Event("podium-theme"));
});

addEventListener("hashchange", async () => {
  await show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});

whoever().then((me) => {
  const who = document.getElementById("who");
  who.hidden = !me.key && !hasKey();
  who.textContent = `Key: ${me.key ?? ""}`;
  who.title = "Forget this key";
  who.addEventListener("click", () => {
    forgetKey();
    location.reload();
  });
}, () => {});
show();
