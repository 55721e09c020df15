// A training run: how it goes, its curves while it learns, and what it wrote at any step of it.
import { get } from "./api.js";
import { ago, dollars, freshHues, h, hueNumber, percent, place, seconds, svg } from "./dom.js";
import { drafts } from "./drafts.js";
import { figure, mean, plot } from "./plots.js";

const EVERY = 4000;
const STALE = 1800;
const NAMED = 11;
const part = (v) => percent(v, 0);
const plain = (v) => (Math.abs(v) >= 10 ? v.toFixed(0) : v.toFixed(2));
const TILES = [
  ["Reward", "reward", (v) => v.toFixed(3)],
  ["Right", "accuracy", part],
  ["Can be performed", "parsed", part],
  ["Useful groups", "live_groups", part],
  ["Entropy", "entropy", (v) => v.toFixed(3)],
  ["Steps a workflow", "steps_per_workflow", (v) => v.toFixed(1)],
  ["Cost of a question", "cost", dollars],
];
const PLOTS = [
  { title: "Reward and accuracy", note: "What a draft earns, and how often its answer is right.", keys: { reward: "reward", accuracy: "right" }, format: part, smooth: true, low: 0, high: 1 },
  { title: "Drafts that can be performed", note: "Those that parse, and those without a reward because workers failed.", keys: { parsed: "performed", unscored: "without a reward" }, format: part, low: 0, high: 1.02 },
  { title: "Useful groups", note: "Only a group with right and wrong answers teaches something.", keys: { all_wrong: "all wrong", live_groups: "useful", all_right: "all right" }, hues: [2, 0, 4], format: part, layers: true, low: 0, high: 1 },
  { title: "Entropy", note: "How undecided it is, in nats a token.", keys: { entropy: "entropy" }, format: plain, smooth: true },
  { title: "Shape of a workflow", note: "Its steps and rounds.", keys: { steps_per_workflow: "steps", rounds: "rounds" }, format: plain, smooth: true },
  { title: "Who reads whom", note: "Steps that read everything before them, and those that read some of it.", keys: { reads_all: "read all", reads_some: "read some" }, format: part, smooth: true },
  { title: "Depends on the question", note: "How much the first worker says about the question, in bits.", keys: { question_dependence: "bits" }, format: plain, smooth: true },
  { title: "Cost of a question", note: "Dollars that the workers cost.", keys: { cost: "dollars" }, format: dollars, smooth: true },
];

export async function training(main, params, signal, rest) {
  if (rest.length) return one(main, rest.join("/"), signal);
  const found = await get("training", {}, signal);
  main.replaceChildren(h("h1", {}, "Training"), h("p.lead", {}, "Runs of podium train: what the Conductor learns, step by step."),
    found.length ? h("div.workers", {}, found.map(card)) : empty("podium train RECIPE --out runs/NAME"));
  return undefined;
}

export const empty = (command) => h("div.sheet.empty", {}, h("p", {}, "Nothing is on the shelf."), h("p.small", {}, "The shelf is the directory that ", h("code", {}, "PODIUM_RUNS"), " names, or ", h("code", {}, "runs"), " where the server was started. For example: ", h("code", {}, command)));

function card(t) {
  const last = (key, show) => (typeof t.last[key] === "number" ? show(t.last[key]) : "–");
  return h("a.sheet.worker.button", { href: `#/training/${encodeURIComponent(t.name)}` }, h("div.grow", {},
    h("div.row", {}, h("h2.grow", {}, t.name), state(t)), spark(t.curve.filter((v) => v !== null)),
    h("dl", {}, h("dt", {}, "Recipe"), h("dd", {}, t.recipe), h("dt", {}, "Steps"), h("dd", {}, t.of ? `${t.last.step ?? 0} of ${t.of}` : String(t.last.step ?? 0)),
      h("dt", {}, "Reward"), h("dd", {}, last("reward", (v) => v.toFixed(3))), h("dt", {}, "Right"), h("dd", {}, last("accuracy", (v) => percent(v, 1))))));
}

const state = (t) => (t.finished ? h("span.pill.good", {}, "finished") : Date.now() / 1000 - t.changed > STALE ? h("span.pill", {}, `still since ${ago(t.changed)}`) : h("span.pill.live", {}, t.last.step ? "learning" : "warming up"));

function spark(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const points = values.map((v, i) => `${(100 * i) / Math.max(1, values.length - 1)},${22 - (20 * (v - low)) / (high - low || 1)}`);
  return svg("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" }, ...(values.length > 1 ? [svg("polyline", { points: points.join(" ") })] : []));
}

async function one(main, name, signal) {
  const head = h("div.progress", { role: "status" });
  const body = h("div");
  main.replaceChildren(h("p.small", {}, h("a", { href: "#/training" }, "← Training")), h("h1", {}, name), head, body);
  let first = await get("training/metrics", { name }, signal);
  while (!first.rows.length && !signal.aborted) {
    body.replaceChildren(h("p.empty.pulse", {}, "It has not made a step yet: it warms up, or has just begun."));
    await new Promise((resolve) => setTimeout(resolve, EVERY));
    first = await get("training/metrics", { name }, signal).catch(() => first);
  }
  if (signal.aborted) return;
  await learn(body, head, name, first, signal);
}

async function learn(body, head, name, first, signal) {
  const { rows } = first;
  const workers = named(rows);
  freshHues(workers);
  const tiles = h("div.tiles");
  const figures = [...whom(workers), ...curves(rows)];
  const written = drafts(name, rows, signal, (step) => plots.forEach((p) => p.mark(step)));
  body.replaceChildren(tiles, h("div.grid.curves", {}, figures.map((f) => f.sheet)), written.el, h("div", {}, held(first.report)));
  const data = (f) => f.reads.map((read) => rows.map(read));
  const plots = figures.map((f) => plot(f.el, rows.map((r) => r.step), data(f).map((values, i) => [f.names[i], values, f.hues?.[i]]), { ...f, pick: written.show, sync: "steps", signal }));
  const tell = (now, fresh) => {
    if (fresh) plots.forEach((p, i) => p.feed(rows.map((r) => r.step), data(figures[i])));
    if (fresh) written.grown();
    progress(head, rows, now);
    tiles.replaceChildren(...TILES.filter(([, key]) => rows.some((r) => typeof r[key] === "number")).map((t) => tile(t, rows)));
  };
  tell(first, false);
  await written.show(rows.at(-1).step);
  if (!first.finished) keepUp(name, rows, signal, tell);
}

/** The workers by how often they are asked; those behind the first ones go together. */
function named(rows) {
  const total = new Map();
  for (const row of rows) for (const [w, n] of Object.entries(row.workers ?? {})) if (typeof n === "number") total.set(w, (total.get(w) ?? 0) + n);
  return [...total].sort((a, b) => b[1] - a[1]).map(([w]) => w);
}

const share = (w) => (row) => row.workers?.[w] ?? 0;

function whom(workers) {
  if (!workers.length) return [];
  const [shown, rest] = [workers.slice(0, NAMED), workers.slice(NAMED)];
  const others = rest.length ? [(row) => rest.reduce((sum, w) => sum + share(w)(row), 0)] : [];
  const made = figure("Who is asked", "The share of each worker in the steps. Point at a step to read it; click, and see below what was written there.", { class: "hero" });
  return [{ ...made, names: [...shown, ...(rest.length ? ["others"] : [])], reads: [...shown.map(share), ...others], hues: [...shown.map(hueNumber), null], format: part, layers: true, low: 0, high: 1, height: 260 }];
}

function curves(rows) {
  const number = (key) => (row) => (typeof row[key] === "number" ? row[key] : null);
  return PLOTS.flatMap(({ title, note, keys, hues, ...how }) => {
    const known = Object.entries(keys).map(([key, name], i) => ({ key, name, hue: hues?.[i] ?? i })).filter(({ key }) => rows.some((r) => typeof r[key] === "number"));
    return known.length ? [{ ...figure(title, note), ...how, names: known.map((k) => k.name), reads: known.map((k) => number(k.key)), hues: known.map((k) => k.hue) }] : [];
  });
}

const lately = (rows, key) => mean(rows.map((r) => (typeof r[key] === "number" ? r[key] : null))).at(-1);

function tile([name, key, show], rows) {
  const now = lately(rows, key);
  const then = lately(rows.slice(0, Math.min(5, rows.length)), key);
  const before = rows.length > 5 && then !== null ? `from ${show(then)}` : "";
  return h("div.tile", { title: "The mean of the last five steps, and of the first five" }, h("div.soft.small", {}, name), h("b", {}, now === null ? "–" : show(now)), h("div.soft.small", {}, before), spark(mean(rows.map((r) => r[key] ?? null)).filter((v) => v !== null)));
}

function progress(el, rows, { of, finished }) {
  const last = rows.at(-1);
  const pace = lately(rows, "seconds");
  const left = of && !finished ? (of - last.step) * (pace ?? 0) : 0;
  const words = [pace ? `${seconds(pace)} a step` : null, left > 0 ? `about ${seconds(left)} left` : null].filter(Boolean).join(", ");
  el.replaceChildren(h("div.row", {}, h("span.pill", { class: finished ? "good" : "live" }, finished ? "finished" : last.step === of ? "reporting" : "learning"), h("span.soft.num", {}, `Step ${last.step}${of ? ` of ${of}` : ""}: ${words}`)),
    of ? h("div.meter", { role: "meter", "aria-label": "Steps done", "aria-valuemin": "0", "aria-valuemax": String(of), "aria-valuenow": String(last.step) }, place(h("i"), { width: `${(100 * last.step) / of}%` })) : "");
}

function keepUp(name, rows, signal, tell) {
  const timer = setInterval(async () => {
    try {
      let more = await get("training/metrics", { name, after: rows.at(-1).step }, signal);
      const again = more.last < rows.at(-1).step; // it was killed, and went on from its last checkpoint
      if (again) {
        more = await get("training/metrics", { name }, signal);
        rows.length = 0;
      }
      rows.push(...more.rows);
      if (rows.length) tell(more, again || more.rows.length > 0);
      if (more.finished) clearInterval(timer);
    } catch {
      // the server is away for a moment; the next turn asks again
    }
  }, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
}

/** What it is worth on questions that it never saw. */
function held(report) {
  return Object.entries(report).filter(([, r]) => Array.isArray(r?.strategies)).map(([split, r]) => h("section.sheet", {}, h("h2", {}, `Held out: ${split}`),
    typeof r.p === "number" ? h("p.soft.small", {}, `Against ${r.best_single}, the best worker alone: p = ${r.p < 0.001 ? "<0.001" : r.p.toFixed(3)} (McNemar).`) : null,
    h("div.scroll", {}, h("table.small", {}, h("thead", {}, h("tr", {}, h("th", {}, "Strategy"), ["Right", "$ / question", "n"].map((c) => h("th.n", {}, c)))),
      h("tbody", {}, r.strategies.map((s) => h("tr", {}, h("td", {}, s.strategy), h("td.n", {}, percent(s.accuracy, 1)), h("td.n", {}, dollars(s.dollars)), h("td.n", {}, String(s.questions)))))))));
}
