// Every run: searched and filtered a page at a time, and one of them opened.
import { follow, get, me as whoever } from "./api.js";
import { ago, count, debounce, dollars, h, problem, seconds, when } from "./dom.js";
import { insist } from "./ask.js";
import { RunModel, RunView } from "./run.js";
import { share } from "./share.js";

const PAGE = 50;
const STATES = { answered: "good", partial: "warn", failed: "bad", unfinished: "live" };
const SAID = { answered: "answered", partial: "cut short", failed: "failed", unfinished: "unfinished" };
const DAY = 86400;
const ELSEWHERE = 1500;

export async function runs(main, params, signal, [id]) {
  return id ? one(main, id, signal) : list(main, params, signal);
}

async function list(main, params, signal) {
  const me = await whoever();
  const body = h("tbody");
  const foot = h("p.empty", { role: "status" });
  const more = h("button", { type: "button", hidden: true, onclick: () => fetchMore() }, "More");
  const compare = h("button", { type: "button", disabled: true, onclick: () => { location.hash = `#/compare/${[...chosen].join("/")}`; } }, "Compare two");
  const chosen = new Set();
  const names = new Map([["", "no key"], ...me.keys.map((k) => [k.id, k.name])]);
  const filters = fields(me, params);
  const form = h("form.filters", { role: "search", onsubmit: (e) => e.preventDefault(), oninput: debounce(() => restart(), 180) }, filters.map((f) => f.el));
  main.replaceChildren(h("div.row", {}, h("h1.grow", {}, "Runs"), compare), form,
    h("div.sheet.scroll", {}, h("table.runs", {}, h("thead", {}, h("tr", {},
      h("th", {}, h("span.sr", {}, "Choose")), h("th", {}, "Question"), h("th", {}, "State"), h("th", {}, "Strategy"), h("th", {}, "Workers"), me.keys.length ? h("th", {}, "Key") : null,
      h("th.n", {}, "Steps"), h("th.n", {}, "Tokens"), h("th.n", {}, "Time"), h("th.n", {}, "Cost"), h("th", {}, "When"))), body), foot),
    h("div.row", {}, more));
  let turn = 0;
  let next = "";

  function restart() {
    body.replaceChildren();
    next = "";
    const given = filters.filter((f) => f.read() !== "").map((f) => [f.name, f.kept()]);
    history.replaceState(null, "", `#/runs${given.length ? `?${new URLSearchParams(given)}` : ""}`);
    fetchMore();
  }

  async function fetchMore() {
    const mine = ++turn;
    const wanted = body.childElementCount + PAGE;
    const asked = Object.fromEntries(filters.map((f) => [f.name, f.read()]));
    let looked = 0;
    more.hidden = true;
    foot.hidden = false;
    foot.textContent = "";
    try {
      do {
        const page = await get("runs", { ...asked, before: next, limit: PAGE }, signal);
        if (mine !== turn) return;
        body.append(...page.runs.map(row));
        next = page.next;
        looked += page.looked;
        foot.textContent = next && body.childElementCount < wanted ? `Looked at ${count(looked)} runs…` : "";
      } while (next && body.childElementCount < wanted);
      more.hidden = !next;
      foot.textContent = body.childElementCount ? "" : "No run is like that.";
      foot.hidden = body.childElementCount > 0;
    } catch (error) {
      if (!signal.aborted && mine === turn) foot.replaceChildren(problem(error));
    }
  }

  function row(run) {
    const box = h("input", { type: "checkbox", "aria-label": `Choose ${run.question.slice(0, 60)}`, onchange: () => {
      if (box.checked) chosen.add(run.id);
      else chosen.delete(run.id);
      compare.disabled = chosen.size !== 2;
    } });
    return h("tr", {}, h("td", {}, box), h("td.q", {}, h("a", { href: `#/runs/${run.id}` }, run.question || "(the next turn of a conversation)")),
      h("td", {}, h("span.pill", { class: STATES[run.state] }, SAID[run.state] ?? run.state), run.failure ? h("div.small.soft", {}, run.failure) : null), h("td.wide", {}, run.strategy), h("td.wide.small.soft", {}, run.workers),
      me.keys.length ? h("td.wide.small", {}, names.get(run.owner) ?? run.owner) : null,
      h("td.n.wide", {}, run.rounds > 1 ? `${run.steps} in ${run.rounds}` : run.steps), h("td.n.wide", {}, count(run.tokens)), h("td.n.wide", {}, seconds(run.seconds)),
      h("td.n", {}, dollars(run.usd)), h("td.soft.small", { title: when(run.started) }, ago(run.started)));
  }

  await fetchMore();
}

function fields(me, params) {
  const text = (name, label, props) => {
    const input = h("input", { type: "search", value: params.get(name) ?? "", ...props });
    return { name, el: h("label.field", {}, label, input), read: () => input.value.trim(), kept: () => input.value.trim() };
  };
  const choice = (name, label, options, any = "any") => {
    const input = h("select", {}, h("option", { value: "" }, any), options.map(([value, said]) => h("option", { value }, said)));
    input.value = params.get(name) ?? "";
    const since = () => Math.floor(Date.now() / 1000 - Number(input.value) * DAY);
    return { name, el: h("label.field", {}, label, input), kept: () => input.value, read: () => (name === "since" && input.value ? String(since()) : input.value) };
  };
  return [
    text("q", "Search the questions", { placeholder: "words of the question" }),
    choice("strategy", "Strategy", [...me.strategies, ...me.workers.map((w) => `single:${w}`)].map((n) => [n, n])),
    choice("worker", "Worker", me.workers.map((n) => [n, n])),
    choice("state", "State", Object.entries(SAID)),
    choice("failure", "Failure", me.failures.map((n) => [n, n])),
    me.keys.length ? choice("key", "Key", [["*", "everybody’s"], ["-", "without a key"], ...me.keys.map((k) => [k.id, k.name])], me.key ? "mine" : "any") : null,
    choice("since", "Time", [["1", "last day"], ["7", "last week"], ["30", "last month"]]),
    text("dollars", "Cost from, $", { type: "number", min: "0", step: "any" }),
    text("seconds", "Seconds from", { type: "number", min: "0", step: "any" }),
  ].filter(Boolean);
}

/** One run: of the server's own, or of an evaluation on the shelf. */
export async function one(main, id, signal, shelf = undefined) {
  const run = { ...(await get(`runs/${id}`, { shelf }, signal)), shelf };
  const model = new RunModel(run);
  const stop = run.live ? h("button.stop.small", { type: "button", onclick: () => insist(`runs/${id}/stop`) }, "Stop") : null;
  const view = new RunView(model, { running: run.live, actions: [stop, h("button.small", { type: "button", onclick: (e) => shared(e.target, id, shelf) }, "Share as a file")] });
  const earlier = run.earlier.filter((m) => m.role !== "system");
  main.replaceChildren(...[
    h("p.small", {}, shelf ? h("a", { href: `#/evaluations/${encodeURIComponent(shelf)}` }, `← ${shelf}`) : h("a", { href: "#/runs" }, "← Runs"), h("span.soft", {}, ` · ${when(run.started)} · `), h("span.soft.mono", {}, run.id)),
    h("h1.sr", {}, "Run"),
    earlier.length ? h("details.message", {}, h("summary", {}, `${earlier.length} earlier messages`), earlier.map((m) => h("div.message", {}, h("h4", {}, m.role), h("pre.raw", {}, m.content)))) : null,
    h("div.asked", {}, h("div", { tabindex: "0" }, run.question)), view.el].filter(Boolean));
  if (run.live) {
    await follow(id, (event) => view.hear(event), { signal });
    if (view.running && !signal.aborted) await view.reload();
    stop.remove();
  } else if (run.state === "unfinished") {
    await wait(view, signal);
  }
}

/** Another process has it, or it was cut off: whichever it is, what it has done shows as it grows. */
async function wait(view, signal) {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, ELSEWHERE));
    if (signal.aborted) return;
    const now = await get(`runs/${view.model.run.id}`, {}, signal).catch(() => null);
    if (!now || signal.aborted) continue;
    const grown = JSON.stringify(now.rounds) !== JSON.stringify(view.model.run.rounds) || now.state !== "unfinished";
    if (grown) {
      view.model.load(now);
      view.draw();
    }
    if (now.state !== "unfinished") return;
  }
}

async function shared(button, id, shelf) {
  button.disabled = true;
  try {
    await share(id, shelf);
  } finally {
    button.disabled = false;
  }
}
