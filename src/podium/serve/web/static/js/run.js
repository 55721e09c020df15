// A run, live or stored: one model of it, filled by events or by a record, and the view on it.
import { get } from "./api.js";
import { count, dollars, h, plain, say, seconds } from "./dom.js";
import { WorkflowGraph } from "./graph.js";
import { render } from "./markdown.js";
import { openDraft, openStep } from "./step.js";
import { timeline } from "./timeline.js";

const REDRAW = 120;
const LIVE_WORDS = 30_000;

const waiting = (step, worker) => ({
  step, worker, subtask: step.subtask, status: "waiting", text: "", reasoning: "", notes: [],
  usage: null, cost: null, seconds: 0, started: 0, since: 0, failure: null, replayed: false, inner: null,
});

/** What was noted of each step, by its place: why it was tried again, or who stood in. */
function noted({ retries = [], rounds, workers }) {
  const notes = new Map();
  const asked = new Map();
  for (const { round, index, worker, reason } of retries) {
    const at = `${round}/${index}`;
    const before = asked.get(at) ?? workers[rounds[round]?.steps?.[index]?.worker];
    notes.set(at, [...(notes.get(at) ?? []), retried(worker, before, reason)]);
    asked.set(at, worker);
  }
  return notes;
}

const retried = (worker, before, reason) => (worker !== before ? `↪ ${worker} stands in: ${reason}` : `↻ again: ${reason}`);

function settled(result, names, before, notes = []) {
  const state = before ?? { ...waiting(result.step, result.worker), notes };
  const kind = result.failure?.kind;
  const planned = names[result.step.worker];
  if (planned && planned !== result.worker && !state.notes.some((n) => n.startsWith("↪"))) {
    state.notes.push(`↪ stands in for ${planned}`);
  }
  if (result.attempts > 1 && !state.notes.length) state.notes.push(`↻ ${result.attempts} attempts`);
  return Object.assign(state, {
    worker: result.worker, text: result.output, reasoning: result.reasoning, usage: result.usage, cost: result.cost,
    seconds: result.seconds, started: result.started, failure: result.failure, replayed: result.replayed, inner: result.inner,
    status: kind === "Skipped" ? "skipped" : result.failure ? "failed" : "done",
  });
}

export class RunModel {
  constructor(run) {
    this.load(run);
  }

  /** Take over a record; what was seen on the way stays. */
  load(run) {
    const before = this.rounds ?? [];
    const notes = noted(run);
    this.run = run;
    this.rounds = run.rounds.map((round, r) => ({
      drafts: round.drafts,
      steps: round.steps,
      failure: round.failure,
      planning: false,
      states: round.results.map((result, i) => settled(result, run.workers, before[r]?.states[i], notes.get(`${r}/${i}`))),
    }));
  }

  round(number) {
    while (this.rounds.length <= number) this.rounds.push({ drafts: [], steps: null, failure: null, planning: true, states: [] });
    return this.rounds[number];
  }

  /** Take in an event; returns what has to be drawn anew. */
  apply(event) {
    const take = this[`on_${event.kind}`];
    return take ? take.call(this, event) : {};
  }

  on_started({ run }) { this.load(run); return { all: true }; }
  on_planning({ round }) { this.round(round); return { round }; }
  on_rejected({ round, draft }) { this.round(round).drafts.push(draft); return { round }; }

  on_planned({ round, draft, steps }) {
    const found = this.round(round);
    found.drafts.push(draft);
    Object.assign(found, { steps, planning: false, states: steps.map((s) => waiting(s, this.run.workers[s.worker])) });
    return { round };
  }

  on_begun({ round, index, step, worker }) {
    const found = this.round(round);
    const fresh = !found.steps;
    if (fresh) Object.assign(found, { steps: [step], planning: false, states: [waiting(step, worker)] });
    Object.assign(found.states[index], { status: "working", worker, since: performance.now() });
    return fresh ? { round } : { round, index };
  }

  on_piece({ round, index, of, text }) {
    const state = this.rounds[round].states[index];
    if (of === "reasoning") state.reasoning += text;
    else state.text += text;
    return { round, index };
  }

  on_text({ round, index, of, text }) {
    this.rounds[round].states[index][of === "reasoning" ? "reasoning" : "text"] = text;
    return { round, index };
  }

  on_retried({ round, index, worker, reason }) {
    const state = this.rounds[round].states[index];
    state.notes.push(retried(worker, state.worker, reason));
    Object.assign(state, { worker, text: "" });
    return { round, index };
  }

  on_done({ round, index, result }) {
    const found = this.round(round);
    found.states[index] = settled(result, this.run.workers, found.states[index]);
    return { round, index };
  }

  on_round({ round, failure }) { Object.assign(this.round(round), { failure, planning: false }); return { round }; }
  on_finished({ run }) { this.load(run); return { all: true }; }

  get live() {
    const states = this.rounds.flatMap((r) => r.states);
    const drafts = this.rounds.flatMap((r) => r.drafts);
    const spent = [...states, ...drafts];
    return {
      cost: spent.reduce((sum, s) => sum + (s.cost ?? 0), 0),
      tokens: spent.reduce((sum, s) => sum + (s.usage ? s.usage.input + s.usage.output : 0), 0),
      steps: states.length,
    };
  }

  /** The words of the step that answers, as far as they have come. */
  get speaking() {
    return this.rounds.at(-1)?.states.at(-1)?.text ?? "";
  }
}

export class RunView {
  constructor(model, { running = false, actions = [], tall = true } = {}) {
    this.model = model;
    this.running = running;
    this.since = performance.now();
    this.graphs = [];
    this.status = h("span.pill");
    this.facts = h("div.facts-line");
    this.rounds = h("div.rounds", { role: "group", "aria-label": "Workflow, round by round", tabindex: "0" });
    this.lanes = h("div", { hidden: true });
    this.trouble = h("div");
    this.words = h("div.words");
    this.answer = h("section.sheet.answer", { "aria-label": "Answer", hidden: true }, this.words);
    this.el = h("div.run", {}, h("section.sheet", { "aria-label": "Workflow" },
      h("div.run-head", {}, this.status, this.facts, h("span.grow"), this.#tabs(), actions), this.trouble, this.rounds, this.lanes), this.answer);
    this.touched = new Map();
    this.draw();
  }

  #tabs() {
    const show = (which) => {
      this.rounds.hidden = which !== 0;
      this.lanes.hidden = which !== 1;
      if (which === 1) this.lanes.replaceChildren(timeline(this.model, (r, i) => this.open(r, i)));
      tabs.forEach((tab, i) => tab.setAttribute("aria-selected", String(i === which)));
    };
    const tabs = ["Graph", "Timeline"].map((name, i) => h("button", { type: "button", role: "tab", "aria-selected": String(i === 0), onclick: () => show(i) }, name));
    return h("div.tabs", { role: "tablist", "aria-label": "How the run is shown" }, tabs);
  }

  open(round, index) {
    const state = this.model.rounds[round].states[index];
    openStep(this.model.run, round, index, state);
  }

  draw() {
    this.graphs = [];
    this.boxes = this.model.rounds.map((_, r) => this.#round(r));
    this.rounds.replaceChildren(...this.boxes);
    this.#summary();
    if (!this.running) this.#answer();
  }

  #round(number) {
    const { drafts, steps, states, planning, failure } = this.model.rounds[number];
    const rejected = drafts.filter((d) => d.complaint).length;
    const head = h("div.round-head", {},
      h("b", {}, `Round ${number + 1}`),
      drafts.length ? h("span.soft.num", {}, `planned in ${seconds(drafts.reduce((s, d) => s + d.seconds, 0))}`) : null,
      rejected ? h("span.pill.warn", { title: drafts.find((d) => d.complaint).complaint }, rejected === 1 ? "draft rejected once" : `drafts rejected ${rejected} times`) : null,
      failure ? h("span.pill.bad", { title: failure.message }, failure.kind) : null,
      drafts.length ? h("button.quiet.small", { type: "button", onclick: () => openDraft(this.model.run, number, drafts) }, "Draft") : null);
    return h("div.round", {}, head, this.#stage(number, steps, states, planning && !failure));
  }

  #stage(number, steps, states, planning) {
    if (planning) return h("div.planning.pulse", {}, "The Conductor is planning…");
    if (!steps) return h("div.planning", {}, "No workflow came of it.");
    if (!steps.length) return h("div.planning", {}, "The answer stands.");
    this.graphs[number] = new WorkflowGraph(steps, states, (i) => this.open(number, i));
    return this.graphs[number].el;
  }

  #summary() {
    const { run, live } = this.model;
    const { usage, cost } = this.running ? { usage: null, cost: live.cost } : run;
    const limit = run.limits?.dollars;
    const elapsed = this.running ? (performance.now() - this.since) / 1000 : run.seconds;
    const state = this.running ? ["live", this.lost ? "Connection lost, trying again" : "Under way"] : run.state === "unfinished" ? ["live", "Not finished"] : run.failure
      ? run.answer !== null ? ["warn", "Cut short"] : ["bad", run.failure.kind === "Cancelled" ? "Stopped" : "Failed"] : ["good", "Answered"];
    this.status.className = `pill ${state[0]}`;
    this.status.textContent = state[1];
    this.facts.replaceChildren(...[
      run.strategy,
      `${live.steps} ${live.steps === 1 ? "step" : "steps"}`,
      this.model.rounds.length > 1 ? `${this.model.rounds.length} rounds` : null,
      `${count(usage ? usage.input + usage.output : live.tokens)} tokens`,
      seconds(elapsed),
      `${dollars(cost)}${limit ? ` of ${dollars(limit)}` : ""}${run.unpriced ? ` + ${run.unpriced} calls without a price` : ""}`,
    ].filter(Boolean).map((fact) => h("span", {}, fact)));
    if (run.state === "unfinished" && !this.running) {
      this.trouble.replaceChildren(h("p.note", {}, "It has not ended: another process is at work on it, or it was cut off. What is done so far is shown."));
      return;
    }
    this.trouble.replaceChildren(...(run.failure && !this.running ? [h("p.problem", {}, `${run.failure.kind}: ${run.failure.message} `, h("span.pill.bad", {}, `blame: ${run.failure.blame}`))] : []));
  }

  #answer() {
    const { answer } = this.model.run;
    this.answer.hidden = answer === null || answer === undefined;
    this.rendered = this.answer.hidden ? null : render(this.words, answer);
  }

  /** Take in an event, and draw soon: many arrive between two pictures. */
  hear(event) {
    const what = this.model.apply(event);
    if (event.kind === "finished") this.end();
    else if (what.all) this.draw();
    else if (what.round !== undefined && what.index === undefined) this.#redrawRound(what.round);
    else if (what.index !== undefined) this.touched.set(`${what.round}/${what.index}`, what);
    this.timer ??= setTimeout(() => this.#tick(), REDRAW);
  }

  #redrawRound(number) {
    for (let r = this.boxes.length; r < this.model.rounds.length; r++) {
      this.boxes[r] = h("div");
      this.rounds.append(this.boxes[r]);
    }
    const box = this.#round(number);
    this.boxes[number].replaceWith(box);
    this.boxes[number] = box;
    if (number) box.scrollIntoView({ block: "nearest", inline: "end" });
  }

  #tick() {
    this.timer = undefined;
    this.model.rounds.forEach(({ states }, r) => states.forEach((state, i) => {
      if (this.touched.has(`${r}/${i}`) || state.status === "working") this.graphs[r]?.update(i);
    }));
    this.touched.clear();
    this.#summary();
    if (!this.running) return;
    const words = this.model.speaking;
    if (words && words.length !== this.shown) {
      this.shown = words.length;
      this.answer.hidden = false;
      if (words.length < LIVE_WORDS) render(this.words, words);
      else this.words.replaceChildren(h("pre.raw", {}, plain(words.slice(-LIVE_WORDS))));
    }
    this.timer = setTimeout(() => this.#tick(), words.length > 4000 ? 3 * REDRAW : REDRAW);
  }

  end() {
    this.running = false;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.draw();
    say(this.model.run.answer !== null ? "The answer is there." : "The run ended without an answer.");
  }

  /** The run as it was stored, where its events ended before it did. */
  async reload() {
    this.model.load(await get(`runs/${this.model.run.id}`));
    this.end();
  }
}
