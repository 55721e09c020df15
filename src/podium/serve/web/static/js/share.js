// A run as one file: drawn by the same code, without a script, under a policy that allows none.
import { get } from "./api.js";
import { h, when } from "./dom.js";
import { RunModel, RunView } from "./run.js";
import { stepParts } from "./step.js";
import { timeline } from "./timeline.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'";

export async function share(id, shelf = undefined) {
  const [run, ...styles] = await Promise.all([get(`runs/${id}/full`, { shelf }), text("/web/base.css"), text("/web/run.css")]);
  const head = [h("meta", { charset: "utf-8" }), h("meta", { "http-equiv": "Content-Security-Policy", content: POLICY }),
    h("meta", { name: "viewport", content: "width=device-width, initial-scale=1" }), h("title", {}, run.question.slice(0, 80) || "A run")];
  const page = ["<!doctype html>", `<html lang="en" data-theme="${document.documentElement.dataset.theme}">`, ...head.map((el) => el.outerHTML),
    `<style>${styles.join("\n")}</style>`, "<body>", (await drawn(run)).outerHTML, "</body></html>"];
  const file = new Blob([page.join("\n")], { type: "text/html" });
  const link = h("a", { href: URL.createObjectURL(file), download: `podium-run-${id}.html` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const text = async (path) => (await fetch(path)).text();

async function drawn(run) {
  const model = new RunModel(run);
  const view = new RunView(model);
  await view.rendered;
  view.el.querySelectorAll(".tabs, .round-head button").forEach((el) => el.remove());
  const steps = run.steps.flatMap((round, r) => round.map((step, i) => {
    const head = `Round ${r + 1}, step ${i + 1}: ${step.worker}`;
    return h("details.message", {}, h("summary", {}, head), h("div.sheet", {}, stepParts(step, model.rounds[r].states[i].notes)));
  }));
  const made = h("main", {}, h("p.soft", {}, `A run of Podium · ${when(run.started)} · ${run.id}`), h("div.asked", {}, h("div", {}, run.question)), view.el,
    h("section.sheet", {}, h("h2", {}, "Timeline"), timeline(model, () => {})), h("section.sheet", {}, h("h2", {}, "Every step"), steps));
  await new Promise((resolve) => setTimeout(resolve)); // what was handed to the renderer is drawn by then
  made.querySelectorAll("button").forEach((button) => {
    const box = h("div", { class: button.className, "aria-label": button.getAttribute("aria-label") ?? undefined, role: "img" });
    box.style.cssText = button.style.cssText;
    box.append(...button.childNodes);
    button.replaceWith(box);
  });
  return made;
}
