"use strict";
// Whatever a model wrote is only ever set as text: there is no innerHTML here, and none is needed.
(() => {
  const PAGE = 50;
  const by = (id) => document.getElementById(id);
  const chunks = new Map();

  const el = (tag, kind, text) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const unpack = async (id) => {
    const bytes = Uint8Array.from(atob(by(id).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };

  const chunk = (number) => {
    if (!chunks.has(number)) chunks.set(number, unpack("chunk" + number));
    return chunks.get(number);
  };

  const kind = (score) =>
    score === "u" || score === null ? "unscored" : score === "-" ? "" : score >= 1 ? "right" : score <= 0 ? "wrong" : "part";
  const SIGN = { right: "✓", wrong: "✗", unscored: "?", part: "½", "": "" };

  const cell = (score, title) => {
    const made = el("span", "cell " + kind(score), SIGN[kind(score)]);
    made.title = title + ": " + ({ right: "right", wrong: "wrong", unscored: "unscored", part: score, "": "not asked" })[kind(score)];
    return made;
  };

  const money = (usd) => (usd === null ? "price unknown" : usd ? "$" + usd.toPrecision(2) : "free");
  const folded = (label, text, open) => {
    const made = el("details");
    made.open = Boolean(open);
    made.append(el("summary", "", label), el("pre", "", text));
    return made;
  };

  const stepOf = (step, index, texts) => {
    const [worker, subtask, access, output, tokens, usd, seconds, failure, reasoning] = step;
    const reads = access === "all" ? "reads all" : access.length ? "reads " + access.join(", ") : "reads nothing";
    const label = `step ${index} · ${worker} · ${reads} · ${tokens} tokens · ${money(usd)} · ${seconds} s`;
    const made = el("details");
    made.append(el("summary", "", label), el("p", "note", texts[subtask]));
    if (texts[reasoning]) made.append(el("p", "note", texts[reasoning]));
    if (texts[failure]) made.append(el("p", "note bad", texts[failure]));
    made.append(el("pre", "", texts[output]));
    return made;
  };

  const answerOf = (answer, rows, texts) => {
    const made = el("details");
    const head = el("summary");
    const name = rows[answer.row] + (answer.sample ? ` · sample ${answer.sample}` : "");
    const read = answer.read === null ? "no answer read" : `read “${texts[answer.read].slice(0, 80)}”`;
    head.append(cell(answer.score, name), `${name} · ${read} · ${answer.tokens} tokens · ${money(answer.usd)}`);
    made.append(head);
    if (texts[answer.note]) made.append(el("p", "note", texts[answer.note]));
    if (texts[answer.failure]) made.append(el("p", "note bad", texts[answer.failure]));
    answer.rounds.forEach((round, number) => {
      if (answer.rounds.length > 1) made.append(el("p", "note", `round ${number + 1}` + (round.steps.length ? "" : ": the answer stands")));
      round.drafts.forEach(([draft, complaint]) => {
        made.append(folded(complaint !== undefined && texts[complaint] ? "draft, rejected: " + texts[complaint] : "draft", texts[draft]));
      });
      round.steps.forEach((step, index) => made.append(stepOf(step, index, texts)));
    });
    made.append(el("p", "note", `run ${answer.run} · ${answer.seconds} s`));
    return made;
  };

  const open = async (holder, position, index) => {
    const id = index.items[position][0];
    const { texts, questions } = await chunk(Math.floor(position / index.chunk));
    const found = questions[id];
    const made = el("div", "open");
    made.append(el("h3", "", id), el("pre", "", texts[found.question]));
    made.append(el("h3", "", "Right answer"), el("pre", "", texts[found.target]));
    made.append(el("h3", "", "Strategies"));
    found.answers.forEach((answer) => made.append(answerOf(answer, index.rows, texts)));
    holder.append(made);
  };

  const itemOf = (position, index) => {
    const [id, category, excerpt, scores] = index.items[position];
    const holder = el("div", "item");
    const button = el("button");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    const cells = el("span", "cells");
    scores.forEach((score, i) => cells.append(cell(score, index.rows[i])));
    button.append(cells, el("span", "excerpt", excerpt), el("span", "tag", category), el("span", "tag", id));
    button.addEventListener("click", async () => {
      const shown = holder.querySelector(".open");
      button.setAttribute("aria-expanded", String(!shown));
      if (shown) shown.remove();
      else await open(holder, position, index);
    });
    holder.append(button);
    return holder;
  };

  const fits = (item, wanted) => {
    const [id, category, excerpt, scores] = item;
    if (wanted.category && category !== wanted.category) return false;
    if (wanted.words && !(id + " " + excerpt).toLowerCase().includes(wanted.words)) return false;
    const kinds = (wanted.row === "" ? scores : [scores[Number(wanted.row)]]).map(kind);
    if (wanted.verdict === "differ") return new Set(scores.map(kind).filter(Boolean)).size > 1;
    return !wanted.verdict || kinds.includes(wanted.verdict);
  };

  const start = async () => {
    const index = await unpack("index");
    let at = 0;
    let found = [];
    index.rows.forEach((row, i) => {
      by("row").append(new Option(row, i));
      by("legend").append(el("li", "", `${i + 1} ${row}`));
    });
    [...new Set(index.items.map((item) => item[1]))].filter(Boolean).sort()
      .forEach((category) => by("category").append(new Option(category, category)));

    const draw = () => {
      by("list").replaceChildren(...found.slice(at, at + PAGE).map((position) => itemOf(position, index)));
      const last = Math.min(at + PAGE, found.length);
      by("where").textContent = found.length ? `${at + 1} to ${last} of ${found.length}` : "none";
      by("back").disabled = at === 0;
      by("next").disabled = last >= found.length;
    };
    const filter = () => {
      const wanted = {
        words: by("words").value.trim().toLowerCase(),
        category: by("category").value,
        row: by("row").value,
        verdict: by("verdict").value,
      };
      found = index.items.map((_, position) => position).filter((position) => fits(index.items[position], wanted));
      by("count").textContent = `${found.length} of ${index.items.length}`;
      at = 0;
      draw();
    };
    by("filter").addEventListener("input", filter);
    by("filter").addEventListener("submit", (event) => event.preventDefault());
    by("back").addEventListener("click", () => { at = Math.max(0, at - PAGE); draw(); });
    by("next").addEventListener("click", () => { at += PAGE; draw(); });
    filter();
    document.body.dataset.ready = "yes";
  };
  start();
})();
