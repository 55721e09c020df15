// What the Conductor wrote at a step of its training, next to what came of it; two steps side by side.
import { get } from "./api.js";
import { h, hue, percent, plain, problem } from "./dom.js";

/** `told` hears which step is looked at. The early one stays where it is put, the late one follows. */
export function drafts(name, rows, signal, told) {
  const then = column(name, "Then", rows, signal, () => {});
  const now = column(name, "Now", rows, signal, told);
  const el = h("section.sheet", {}, h("h2", {}, "What it wrote"),
    h("p.soft.small", {}, "Some drafts of a step, each next to what its workers answered and what it earned. Move along the steps, or click into a curve, and watch its habits change."),
    h("div.pair", {}, then.el, now.el));
  const ready = then.show(rows[0].step);
  return {
    el,
    show: async (step) => {
      await ready;
      await now.show(step);
    },
    grown: () => [then, now].forEach((c) => c.grown()),
  };
}

function column(name, label, rows, signal, told) {
  const list = h("div.drafts");
  const figures = h("p.small.soft.num");
  const slider = h("input.grow", { type: "range", step: "1", "aria-label": label === "Now" ? "Step" : "Earlier step" });
  const said = h("b.num");
  const bounds = () => {
    slider.min = String(rows[0].step);
    slider.max = String(rows.at(-1).step);
  };
  let turn = 0;
  const show = async (step) => {
    const mine = ++turn;
    bounds();
    slider.value = String(step);
    said.textContent = `step ${step}`;
    slider.setAttribute("aria-valuetext", `step ${step}`);
    figures.textContent = summary(rows.find((r) => r.step === step));
    told(step);
    try {
      const samples = await get("training/samples", { name, step }, signal);
      if (mine === turn) list.replaceChildren(...(samples.length ? samples.map(sample) : [h("p.soft", {}, "No drafts were kept of this step.")]));
    } catch (error) {
      if (mine === turn && !signal.aborted) list.replaceChildren(problem(error));
    }
  };
  slider.addEventListener("input", () => show(Number(slider.value)));
  return { el: h("div", {}, h("div.row", {}, h("span.soft", {}, label), slider, said), figures, list), show, grown: bounds };
}

function summary(row) {
  if (!row) return "";
  const say = (key, name, show) => (typeof row[key] === "number" ? `${name} ${show(row[key])}` : null);
  return [say("reward", "reward", (v) => v.toFixed(2)), say("accuracy", "right", (v) => percent(v)), say("parsed", "performed", (v) => percent(v)), say("steps_per_workflow", "steps", (v) => v.toFixed(1))].filter(Boolean).join(" · ");
}

function sample(s) {
  return h("article.draft", {}, h("h3.mono.small", {}, s.question), s.rounds.map((round, i) => h("div", {}, s.rounds.length > 1 ? h("p.small.soft", {}, `Round ${i + 1}`) : null, ...drawn(round))));
}

function drawn(round) {
  const raw = h("pre.raw", { tabindex: "0" }, plain(round.draft));
  const verdict = h("p.row.small", {}, judged(round), h("span.soft", {}, typeof round.reward === "number" ? `reward ${round.reward.toFixed(2)}` : "no reward"));
  if (!round.steps || round.complaint) return [verdict, round.complaint ? h("p.note.small", {}, plain(round.complaint)) : null, raw].filter(Boolean);
  if (!round.steps.length) return [verdict, h("p.small", {}, "The answer stands.")];
  return [verdict, h("ol.flow", {}, round.steps.map(({ worker, step }) => h("li", { class: hue(worker) },
    h("div", {}, h("b", {}, worker), " ", plain(step.subtask), reads(step.access)),
    round.answers?.[worker] ? h("div.came", { title: "The end of what it answered" }, `… ${plain(round.answers[worker]).trim()}`) : null))),
  h("details.small", {}, h("summary", {}, "As it was written"), raw)];
}

function judged({ complaint, score }) {
  if (complaint) return h("span.pill.warn", {}, "cannot be performed");
  if (score === null || score === undefined) return h("span.pill", {}, "unscored");
  return h("span.pill", { class: score >= 1 ? "good" : "bad" }, score >= 1 ? "right" : "wrong");
}

const reads = (access) => (access === "all" ? h("span.soft", {}, " ⟵ all") : access.length ? h("span.soft", {}, ` ⟵ ${access.map((i) => i + 1).join(", ")}`) : null);
