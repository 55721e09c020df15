// The questions of a strategy, or of two side by side where they differ; each opens its run.
import { get } from "./api.js";
import { count, dollars, h, problem } from "./dom.js";
import { at } from "./evaluations.js";

const ALONE = { all: "all", right: "right", wrong: "not right", unscored: "unscored" };
const AGAINST = { differ: "they differ", better: "only the first is better", worse: "only the second is better", all: "all" };
const PAGE = 50;

export async function questions(main, name, params, signal) {
  const asked = Object.fromEntries(["a", "b", "report", "category", "show"].map((key) => [key, params.get(key) ?? ""]));
  const shows = asked.b ? AGAINST : ALONE;
  asked.show ||= Object.keys(shows)[0];
  const pair = [asked.a, asked.b].filter(Boolean);
  const body = h("tbody");
  const foot = h("p.empty", { role: "status" });
  const more = h("button", { type: "button", hidden: true, onclick: () => fetchMore() }, "More");
  const first = await get("evaluations/questions", { name, ...asked }, signal);
  const go = (change) => {
    location.hash = at(name, Object.fromEntries(Object.entries({ ...asked, ...change }).filter(([, v]) => v)));
  };
  main.replaceChildren(h("p.small", {}, h("a", { href: at(name) }, `← ${name}`)), h("h1", {}, asked.b ? `${asked.a} and ${asked.b}` : asked.a),
    h("p.lead", {}, summary(first.counts, asked)),
    h("div.row.filters-line", {}, select("Show", shows, asked.show, (show) => go({ show }), first.counts), first.categories.length ? select("Category", { "": "any", ...Object.fromEntries(first.categories.map((c) => [c, c])) }, asked.category, (category) => go({ category })) : null),
    h("div.sheet.scroll", {}, h("table.asked-of", {}, h("thead", {}, h("tr", {}, h("th", {}, "Question"), h("th", {}, "Wanted"), pair.map((p) => h("th", {}, p)), asked.b ? h("th", {}, "") : null)), body), foot), more);
  show(first);

  function show({ questions: rows, found }) {
    body.append(...rows.map((q) => row(name, q, pair)));
    more.hidden = body.childElementCount >= found;
    more.textContent = `More (${count(found - body.childElementCount)} left)`;
    foot.hidden = found > 0;
    foot.textContent = found ? "" : "No question is like that.";
  }

  async function fetchMore() {
    more.disabled = true;
    try {
      show(await get("evaluations/questions", { name, ...asked, from: Math.ceil(body.childElementCount / PAGE) * PAGE }, signal));
    } catch (error) {
      if (!signal.aborted) more.after(problem(error));
    }
    more.disabled = false;
  }
}

const summary = (n, { a, b }) => (b
  ? `Of ${count(n.all)} questions they differ on ${count(n.differ)}: ${a} is better on ${count(n.better)}, ${b} on ${count(n.worse)}.`
  : `Of ${count(n.all)} questions ${count(n.right)} are right, ${count(n.wrong)} are not${n.unscored ? `, and ${count(n.unscored)} could not be scored` : ""}.`);

function select(label, options, value, changed, counts = {}) {
  const input = h("select", { onchange: () => changed(input.value) }, Object.entries(options).map(([v, said]) => h("option", { value: v }, v in counts ? `${said} (${count(counts[v])})` : said)));
  input.value = value;
  return h("label.field", {}, label, input);
}

function row(name, q, pair) {
  const [a, b] = q.answers.map((answer) => answer.runs[0]);
  const both = a && b && h("a.button.small", { href: `#/compare/${a}/${b}?${new URLSearchParams({ shelf: name })}` }, "Side by side");
  return h("tr", {}, h("td.q", {}, a ? h("a", { href: `${at(name)}/runs/${a}` }, q.question) : q.question, q.category ? h("div.small.soft", {}, q.category) : null), h("td.small", {}, q.target),
    q.answers.map((answer, i) => h("td.small", {}, verdict(answer), answer.read !== null ? h("div", {}, answer.read) : null, answer.said ? h("div.soft", {}, answer.said) : null,
      h("div.row", {}, answer.runs.map((id, n) => h("a", { href: `${at(name)}/runs/${id}`, "aria-label": `The run of ${pair[i]} on ${q.question.slice(0, 60)}` }, answer.runs.length > 1 ? `run ${n + 1}` : "run")), answer.runs.length ? h("span.soft", {}, dollars(answer.usd)) : null))),
    pair.length > 1 ? h("td", {}, both || "") : null);
}

function verdict({ score, runs }) {
  if (score === null) return h("span.pill", {}, runs.length ? "unscored" : "not asked");
  return h("span.pill", { class: score >= 1 ? "good" : score > 0 ? "warn" : "bad" }, score >= 1 ? "right" : score > 0 ? `${Math.round(100 * score)} %` : "wrong");
}
