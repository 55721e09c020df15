// A training run: its curves while it learns, and what the Conductor wrote at any step of it.
import { get } from "./api.js";
import { ago, count, dollars, h, percent, plain, problem, seconds } from "./dom.js";
import { figure, plot } from "./plots.js";

const EVERY = 4000;
const PLOTS = [
  ["Reward and accuracy", "What a draft earns, and how often its answer is right.", ["reward", "accuracy"]],
  ["Drafts that can be performed", "Parsed drafts, and those without a reward because workers failed.", ["parsed", "unscored"]],
  ["Useful groups", "Groups with both right and wrong answers teach something; the others do not.", ["live_groups", "all_right", "all_wrong"]],
  ["Habits", "Steps of a workflow, and how much the first worker depends on the question, in bits.", ["steps_per_workflow", "question_dependence", "rounds"]],
  ["Entropy", "How undecided it is, in nats per token.", ["entropy"]],
  ["Cost of a question", "Dollars that the workers cost.", ["cost"]],
];

export async function training(main, params, signal, rest) {
  if (rest.length) return one(main, rest.join("/"), signal);
  const found = await get("training", {}, signal);
  main.replaceChildren(h("h1", {}, "Training"), h("p.lead", {}, "Runs of podium train: what the Conductor learns, step by step."),
    found.length ? h("div.workers", {}, found.map((t) => h("a.sheet.worker.button", { href: `#/training/${encodeURIComponent(t.name)}` }, h("div.grow", {},
      h("div.row", {}, h("h2.grow", {}, t.name), h("span.pill", { class: t.finished ? "good" : "live" }, t.finished ? "finished" : `changed ${ago(t.changed)}`)),
      h("dl", {}, h("dt", {}, "Recipe"), h("dd", {}, t.recipe), h("dt", {}, "Steps"), h("dd", {}, t.of ? `${t.last.step ?? 0} of ${t.of}` : String(t.last.step ?? 0)),
        h("dt", {}, "Reward"), h("dd", {}, (t.last.reward ?? 0).toFixed(3)), h("dt", {}, "Right"), h("dd", {}, percent(t.last.accuracy ?? 0, 1)))))))
      : empty("podium train RECIPE --out runs/NAME"));
  return undefined;
}

export const empty = (command) => h("div.sheet.empty", {}, h("p", {}, "Nothing is on the shelf."), h("p.small", {}, "The shelf is the directory that ", h("code", {}, "PODIUM_RUNS"), " names, or ", h("code", {}, "runs"), " where the server was started. For example: ", h("code", {}, command)));

async function one(main, name, signal) {
  const first = await get("training/metrics", { name }, signal);
  const rows = first.rows;
  const latest = h("p.lead", { role: "status" });
  const grid = h("div.grid");
  const drafts = h("section.sheet", {}, h("h2", {}, "What it wrote"));
  main.replaceChildren(h("p.small", {}, h("a", { href: "#/training" }, "← Training")), h("h1", {}, name), latest, grid, drafts);
  if (!rows.length) {
    grid.append(h("p.empty", {}, "It has not made a step yet."));
    return;
  }
  const feeds = await drawAll(grid, rows, signal);
  sayLatest(latest, rows, first.finished);
  await browse(drafts, name, rows, signal);
  if (!first.finished) keepUp(name, rows, feeds, latest, signal);
}

async function drawAll(grid, rows, signal) {
  const workers = [...new Set(rows.flatMap((r) => Object.keys(r.workers ?? {})))].slice(0, 8);
  const wanted = [...PLOTS.map(([t, n, keys]) => [t, n, keys.filter((k) => rows.some((r) => r[k] !== undefined)), (r, k) => r[k] ?? null]),
    ["Who is asked", "Share of the steps, by worker.", workers, (r, k) => r.workers?.[k] ?? 0]].filter(([, , keys]) => keys.length);
  return Promise.all(wanted.map(async ([title, note, keys, read]) => {
    const { el, sheet } = figure(title, note);
    grid.append(sheet);
    const format = keys[0] === "cost" ? dollars : (v) => (Math.abs(v) >= 10 ? v.toFixed(0) : v.toFixed(2));
    const feed = await plot(el, rows.map((r) => r.step), keys.map((k) => [k.replaceAll("_", " "), rows.map((r) => read(r, k))]), { signal, format });
    return () => feed(rows.map((r) => r.step), keys.map((k) => rows.map((r) => read(r, k))));
  }));
}

function sayLatest(el, rows, finished) {
  const last = rows.at(-1);
  el.textContent = `Step ${last.step}${finished ? ", finished" : ""}: reward ${last.reward.toFixed(3)}, right ${percent(last.accuracy, 1)}, performed ${percent(last.parsed, 1)}, ${seconds(last.seconds)} a step, ${count(rows.length)} steps on record.`;
}

function keepUp(name, rows, feeds, latest, signal) {
  const timer = setInterval(async () => {
    try {
      const more = await get("training/metrics", { name, after: rows.at(-1).step }, signal);
      if (more.rows.length) {
        rows.push(...more.rows);
        feeds.forEach((feed) => feed());
        dispatchEvent(new Event("podium-steps"));
      }
      sayLatest(latest, rows, more.finished);
      if (more.finished) clearInterval(timer);
    } catch {
      // the server is away for a moment; the next turn asks again
    }
  }, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
}

async function browse(el, name, rows, signal) {
  const list = h("div.grid");
  const slider = h("input.grow", { type: "range", min: String(rows[0].step), max: String(rows.at(-1).step), value: rows.at(-1).step, "aria-label": "Step" });
  const said = h("b.num");
  const show = async () => {
    said.textContent = `step ${slider.value}`;
    try {
      const samples = await get("training/samples", { name, step: slider.value }, signal);
      list.replaceChildren(...(samples.length ? samples.map(sample) : [h("p.soft", {}, "No drafts were kept of this step.")]));
    } catch (error) {
      if (!signal.aborted) list.replaceChildren(problem(error));
    }
  };
  slider.addEventListener("input", show);
  addEventListener("podium-steps", () => { slider.max = String(rows.at(-1).step); }, { signal });
  el.append(h("p.soft.small", {}, "Some drafts of a step, next to what came of them. Move along the steps and watch its habits change."), h("div.row", {}, slider, said), h("p"), list);
  await show();
}

function sample(s) {
  const rounds = s.rounds ?? s.drafts.map((draft, i) => ({ draft, score: s.scores[i], reward: s.rewards[i], complaint: s.failures[i], answers: {} }));
  return h("div.message", {}, h("h4", {}, s.question ?? s.problem), rounds.map((r) => h("div", {},
    h("pre.raw", { tabindex: "0" }, plain(r.draft)),
    h("p.row.small.pad", {}, r.complaint ? h("span.pill.warn", {}, "cannot be performed") : h("span.pill", { class: r.score === 1 ? "good" : "bad" }, r.score === null ? "unscored" : r.score === 1 ? "right" : "wrong"), h("span.soft", {}, r.reward === null ? "no reward" : `reward ${r.reward.toFixed(2)}`)),
    r.complaint ? h("p.small.soft.pad", {}, r.complaint) : null,
    Object.keys(r.answers ?? {}).length ? h("details.pad.small", {}, h("summary", {}, "What the workers said last"), h("ul", {}, Object.entries(r.answers).map(([who, text]) => h("li", {}, h("b", {}, `${who}: `), plain(text))))) : null)));
}
