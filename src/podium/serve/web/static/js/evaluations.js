// Evaluations: figures of each strategy, its questions, the runs behind them, and where two differ.
import { get, post } from "./api.js";
import { dollars, h, hue, percent, place, problem, seconds } from "./dom.js";
import { front } from "./front.js";
import { questions } from "./questions.js";
import { one } from "./runs.js";
import { empty } from "./training.js";

export async function evaluations(main, params, signal, [name, kind, id]) {
  if (kind === "runs") return one(main, id, signal, name);
  if (name && params.get("a")) return questions(main, name, params, signal);
  return name ? whole(main, name, signal) : list(main, signal);
}

export const at = (name, query = {}) => `#/evaluations/${encodeURIComponent(name)}${Object.keys(query).length ? `?${new URLSearchParams(query)}` : ""}`;

async function list(main, signal) {
  const found = await get("evaluations", {}, signal);
  const sheets = h("div");
  main.replaceChildren(h("h1", {}, "Evaluations"), h("p.lead", {}, "What podium eval found: how often each strategy is right, and what that costs. A point opens its questions, a question its run."), sheets);
  if (!found.length) sheets.append(empty("podium eval --task math500 --strategy conductor,best-single --out runs/NAME"));
  for (const { name } of found) {
    const sheet = h("section.sheet", { "aria-label": name }, h("h2", {}, name), h("p.soft.pulse", {}, "Counting…"));
    sheets.append(sheet);
    count(name, sheet, signal, h("h2.grow", {}, h("a", { href: at(name) }, name)), (report, i) => overview(name, report, i));
  }
}

async function whole(main, name, signal) {
  const sheet = h("section.sheet", { "aria-label": name }, h("p.soft.pulse", {}, "Counting…"));
  main.replaceChildren(h("p.small", {}, h("a", { href: "#/evaluations" }, "← Evaluations")), h("h1", {}, name), sheet);
  await count(name, sheet, signal, h("span.grow"), (report, i) => [overview(name, report, i), pairing(name, report, i), details(report)]);
}

async function count(name, sheet, signal, title, drawn) {
  const open = h("button", { type: "button", onclick: () => openReport(name, open) }, "Open the report");
  const head = h("div.row", {}, title);
  try {
    const { reports, problem: wrong } = await get("evaluations/figures", { name }, signal);
    if (reports.length) head.append(open);
    sheet.replaceChildren(...[head, wrong ? problem(wrong) : null, ...reports.flatMap((r, i) => [h("h3", {}, r.title), drawn(r, i), r.doubts.map((d) => h("p.note.small", {}, d))])].flat(Infinity).filter(Boolean));
  } catch (error) {
    if (!signal.aborted) sheet.replaceChildren(head, problem(error));
  }
}

async function openReport(name, button) {
  button.disabled = true;
  const tab = window.open("about:blank");
  try {
    const { ticket } = await post(`evaluations/ticket?${new URLSearchParams({ name })}`);
    tab.location.href = `/web/report/${ticket}`;
  } catch (error) {
    tab?.close();
    button.after(problem(error));
  }
  button.disabled = false;
}

function overview(name, { figures, front: best }, i) {
  if (!Object.keys(figures).length) return h("p.soft", {}, "Nothing was asked yet.");
  const open = (strategy) => at(name, { a: strategy, ...(i ? { report: i } : {}) });
  const scored = Object.values(figures).some((f) => f.n);
  return h("div.grid.figures", {}, scored ? front(figures, best, open) : h("p.soft", {}, "Nothing could be scored."), h("div.scroll", {}, table(figures, open)));
}

const COLUMNS = ["Right", "95 %", "p", "$ / question", "Calls", "Time", "n"];

const table = (figures, open) => h("table.small", {}, h("thead", {}, h("tr", {}, h("th", {}, "Strategy"), COLUMNS.map((c) => h("th.n", {}, c)))),
  h("tbody", {}, Object.entries(figures).sort(([, a], [, b]) => b.accuracy - a.accuracy).map(([name, f]) => h("tr", {}, h("td", {}, h("a", { href: open(name) }, name), f.doubts.length ? h("span", { title: f.doubts.join("\n") }, " ⚠") : null),
    h("td.n", {}, f.n ? percent(f.accuracy, 1) : "–"), h("td.n.soft", {}, f.n ? `${percent(f.low, 0)} – ${percent(f.high, 0)}` : ""), h("td.n.soft", {}, chance(f.p_vs_best_single)),
    h("td.n", {}, dollars(f.usd_per_question)), h("td.n", {}, f.calls_per_question.toFixed(1)), h("td.n", {}, seconds(f.seconds_per_question)), h("td.n", {}, String(f.n))))));

const chance = (p) => (p === null ? "" : p < 0.001 ? "<0.001" : p.toFixed(3));

/** Two strategies, chosen; what opens is where they differ. */
function pairing(name, { figures }, i) {
  const names = Object.keys(figures);
  if (names.length < 2) return null;
  const pick = (said, value) => {
    const input = h("select", { "aria-label": said }, names.map((n) => h("option", { value: n }, n)));
    input.value = value;
    return input;
  };
  const [a, b] = [pick("One strategy", names.find((n) => n !== "best-single" && n !== "oracle") ?? names[0]), pick("The other strategy", names.includes("best-single") ? "best-single" : names.at(-1))];
  return h("form.row.pairing", { onsubmit: (e) => {
    e.preventDefault();
    location.hash = at(name, { a: a.value, b: b.value, show: "differ", ...(i ? { report: i } : {}) });
  } }, h("span", {}, "Where"), a, h("span", {}, "and"), b, h("button", { type: "submit" }, "differ"));
}

function details({ figures }) {
  const real = Object.entries(figures).filter(([name]) => name !== "oracle");
  return h("div.grid.top", {}, categories(Object.entries(figures)), usage(real), lengths(real));
}

function categories(rows) {
  const names = [...new Set(rows.flatMap(([, f]) => Object.keys(f.categories)))].sort();
  if (!names.length) return null;
  const most = (c) => Math.max(...rows.map(([, f]) => f.categories[c]?.n ?? 0));
  return h("section.wide", {}, h("h3", {}, "By category"), h("div.scroll", {}, h("table.small.heat", {}, h("thead", {}, h("tr", {}, h("th", {}, ""), h("th.n", {}, "n"), rows.map(([name]) => h("th.n", {}, name)))),
    h("tbody", {}, names.map((c) => h("tr", {}, h("th", { scope: "row" }, c), h("td.n.soft", {}, String(most(c))), rows.map(([, f]) => cell(f.categories[c]))))))));
}

function cell(found) {
  if (!found) return h("td.n", {}, "");
  const el = h("td.n", { title: `${percent(found.low)} – ${percent(found.high)} of ${found.n}` }, percent(found.accuracy));
  el.style.setProperty("--part", `${Math.round(55 * found.accuracy)}%`);
  return el;
}

/** Calls of each worker for a question. */
function usage(rows) {
  const used = rows.filter(([, f]) => Object.keys(f.workers).length);
  const most = Math.max(1e-9, ...used.map(([, f]) => f.calls_per_question));
  const part = (w, calls) => place(h("i", { class: hue(w), title: `${w}: ${calls.toFixed(2)} calls a question` }), { width: `${(100 * calls) / most}%` });
  return h("section", {}, h("h3", {}, "Who is asked, calls a question"), used.map(([name, f]) => h("div.stack", {}, h("span.small", {}, name),
    h("div.pile", { role: "img", "aria-label": Object.entries(f.workers).map(([w, n]) => `${w} ${n.toFixed(2)}`).join(", ") }, Object.entries(f.workers).map(([w, n]) => part(w, n))))), legend(used.flatMap(([, f]) => Object.keys(f.workers))));
}

const legend = (names) => h("p.small.legend", {}, [...new Set(names)].map((w) => h("span.name", {}, h("span.dot", { class: hue(w) }), w)));

/** How many runs had so many steps. */
function lengths(rows) {
  const long = rows.filter(([, f]) => Object.keys(f.steps).some((n) => Number(n) > 1));
  if (!long.length) return null;
  return h("section", {}, h("h3", {}, "Steps of a run"), long.map(([name, f]) => {
    const all = Object.values(f.steps).reduce((a, b) => a + b, 0);
    return h("div.stack", {}, h("span.small", {}, `${name}: ${f.steps_per_workflow.toFixed(1)} a workflow`), h("div.columns", { role: "img", "aria-label": Object.entries(f.steps).map(([n, c]) => `${n} steps: ${c} runs`).join(", ") },
      Object.entries(f.steps).map(([n, c]) => h("div", { title: `${n} steps: ${c} runs` }, place(h("i"), { height: `${Math.max(2, (54 * c) / all)}px` }), h("small", {}, n)))));
  }));
}
