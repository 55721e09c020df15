// Ask a question, watch the workflow happen, go on asking.
import { follow, me as whoever, post } from "./api.js";
import { h, problem, say, worker } from "./dom.js";
import { left } from "./pool.js";
import { RunModel, RunView } from "./run.js";

const EXAMPLES = [
  "How many primes are there below 100? Show the reasoning.",
  "Compare quicksort and mergesort in a short table.",
  "Prove that the square root of 2 is irrational.",
];

export async function ask(main, params, signal) {
  const me = await whoever();
  const talk = [];
  const turns = h("div", {});
  const welcome = h("div.welcome", {}, h("h1", {}, "What shall they work on?"),
    h("p.soft", {}, "A small model plans who does what; you watch them do it."),
    h("div.row", {}, EXAMPLES.map((text) => h("button", { type: "button", onclick: () => { form.text.value = text; form.text.focus(); } }, text))));
  const form = composer(me, (asked) => send(asked));
  main.replaceChildren(h("h1.sr", {}, "Ask"), welcome, turns, form.el);
  form.text.focus();
  if (params.get("q")) form.text.value = params.get("q");

  async function send({ text, ...wishes }) {
    welcome.remove();
    talk.push({ role: "user", content: text });
    const place = h("div", {}, h("p.soft.pulse", {}, "Asking…"));
    turns.append(h("div.turn", {}, h("div.asked", {}, h("div", { tabindex: "0" }, text)), place));
    place.scrollIntoView({ block: "start", behavior: "smooth" });
    form.busy(true);
    try {
      const { run } = await post("ask", { ...wishes, messages: talk });
      const answer = await watch(run, place);
      if (answer === null) talk.pop();
      else talk.push({ role: "assistant", content: answer });
    } catch (error) {
      talk.pop();
      place.replaceChildren(problem(error));
      form.text.value ||= text;
    }
    form.busy(false);
  }

  async function watch(id, place) {
    const stop = h("button.stop.small", { type: "button", onclick: () => {
      stop.disabled = true;
      insist(`runs/${id}/stop`);
    } }, "Stop");
    const link = h("a.button.small", { href: `#/runs/${id}`, hidden: true }, "Open run");
    const blank = { id, question: "", strategy: "", workers: [], rounds: [], limits: {}, seconds: 0, failure: null, answer: null, cost: 0, unpriced: 0 };
    const view = new RunView(new RunModel(blank), { running: true, actions: [stop, link] });
    place.replaceChildren(view.el);
    say("The run has begun.");
    await follow(id, (event) => view.hear(event), { signal, state: (now) => { view.lost = now === "lost"; } });
    if (view.running && !signal.aborted) await view.reload();
    stop.remove();
    link.hidden = false;
    return view.model.run.answer;
  }
}

/** Several processes may share the address: the one that has the run is found by asking again. */
export async function insist(path) {
  for (let turn = 0; turn < 40; turn++) {
    try {
      return await post(path);
    } catch (error) {
      if (error.status !== 421) return undefined;
    }
  }
  return undefined;
}

function composer(me, send) {
  const text = h("textarea", { rows: "1", placeholder: "Ask anything…", "aria-label": "Question", onkeydown: (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      form.requestSubmit();
    }
  } });
  const model = h("select", { "aria-label": "Model or strategy" }, me.models.filter((name) => !me.denied.includes(name)).map((name) => h("option", { value: name }, name)));
  const dollars = number("At most, dollars", { min: "0", step: "any", placeholder: me.limits.dollars ?? "no limit" });
  const steps = number("Steps", { min: "1", max: String(me.limits.steps), placeholder: me.limits.steps });
  const rounds = number("Rounds", { min: "1", placeholder: me.limits.rounds });
  const time = number("Seconds", { min: "1", placeholder: me.limits.seconds ?? "no limit" });
  const off = left();
  const there = me.workers.filter((name) => !me.denied.includes(name));
  const gone = me.workers.filter((name) => me.denied.includes(name));
  const chips = there.map((name) => ({ name, box: h("input", { type: "checkbox", checked: !off.has(name) }) }));
  const options = h("div", { hidden: true, id: "options" }, h("div.options", {}, dollars.el, steps.el, rounds.el, time.el),
    h("fieldset.chips", {}, h("legend", {}, "Workers"), chips.map((c) => h("label.chip", {}, c.box, worker(c.name)))),
    gone.length ? h("p.small.soft.pad", {}, `Denied to everybody: ${gone.join(", ")}.`) : null);
  const toggle = h("button.quiet.small", { type: "button", "aria-expanded": "false", "aria-controls": "options", onclick: () => {
    options.hidden = !options.hidden;
    toggle.setAttribute("aria-expanded", String(!options.hidden));
  } }, "Limits and workers");
  const go = h("button.main", { type: "submit" }, "Ask");
  const form = h("form.sheet.composer", { onsubmit: (event) => {
    event.preventDefault();
    const asked = text.value.trim();
    if (!asked || go.disabled) return;
    text.value = "";
    const deny = chips.filter((c) => !c.box.checked).map((c) => c.name);
    const podium = { dollars: dollars.read(), steps: steps.read(), rounds: rounds.read(), seconds: time.read(), deny: deny.length ? deny : undefined };
    const wished = Object.values(podium).some((v) => v !== undefined);
    send({ text: asked, model: model.value, ...(wished ? { podium } : {}) });
  } }, text,
    options, h("div.row", {}, model, toggle, h("span.grow.soft.small.hint", {}, "Enter asks, Shift+Enter begins a line"), go));
  return { el: form, text, busy: (on) => { go.disabled = on; } };
}

function number(name, props) {
  const input = h("input", { type: "number", inputmode: "decimal", ...props });
  return { el: h("label.field", {}, name, input), read: () => (input.value === "" ? undefined : Number(input.value)) };
}
