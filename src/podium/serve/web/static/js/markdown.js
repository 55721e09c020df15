// What a model wrote, as Markdown with mathematics. It is hostile: marked makes it HTML, DOMPurify
// takes out all but harmless elements, and the browser refuses any markup that was not purified.
import { Marked } from "../vendor/marked.js";
import "../vendor/purify.js";
import { h, plain } from "./dom.js";

const LONG = 120_000;
const MATH = /\$|\\\(|\\\[/;
const MATH_LINE = /\n(?=\$\$|\\\[)/;
// The rule for addresses below holds for every attribute but these, which hold none.
const NO_ADDRESS = "display mathvariant stretchy fence separator symmetric movablelimits lspace rspace columnalign columnlines columnspacing rowspacing rowlines displaystyle scriptlevel accent accentunder linethickness minsize maxsize mathcolor mathbackground width height depth voffset notation align start colspan rowspan title lang xmlns".split(" ");
const RULES = {
  USE_PROFILES: { html: true, mathMl: true },
  FORBID_TAGS: ["style", "form", "input", "button", "select", "option", "textarea", "label", "img", "picture", "source", "video", "audio", "track", "map", "area", "dialog", "details", "summary", "maction", "annotation", "semantics"],
  FORBID_ATTR: ["style", "id", "name", "class", "for", "tabindex", "contenteditable", "autofocus", "popover", "popovertarget", "background", "dir"],
  KEEP_CONTENT: true,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ADD_URI_SAFE_ATTR: NO_ADDRESS,
  RETURN_TRUSTED_TYPE: true,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
});

let katex;

const tex = (source, display) => {
  if (!katex) return `<code>${escaped(source)}</code>`;
  try {
    const made = katex.renderToString(source, { output: "mathml", displayMode: display, throwOnError: true, trust: false, strict: "ignore", maxExpand: 300, maxSize: 30 });
    return made.replace(/<annotation[^>]*>[^<]*<\/annotation>/g, "");
  } catch {
    return `<code>${escaped(source)}</code>`;
  }
};

const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

const math = (name, level, rules, display) => ({
  name,
  level,
  start: (src) => src.match(level === "block" ? MATH_LINE : MATH)?.index,
  tokenizer: (src) => {
    for (const rule of rules) {
      const found = rule.exec(src);
      if (found) return { type: name, raw: found[0], source: found[1] };
    }
  },
  renderer: (token) => tex(token.source, display),
});

const marked = new Marked({
  gfm: true,
  renderer: {
    image: ({ href, text }) => `<a href="${escaped(href)}">[image: ${escaped(text || "without words")}]</a>`,
    html: ({ text }) => escaped(text),
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});
marked.use({
  extensions: [
    math("mathBlock", "block", [/^\$\$([^$]{1,4000}?)\$\$(?:\n|$)/, /^\\\[([\s\S]{1,4000}?)\\\](?:\n|$)/], true),
    math("mathShown", "inline", [/^\$\$([^$]{1,4000}?)\$\$/, /^\\\[([\s\S]{1,4000}?)\\\]/], true),
    math("mathInline", "inline", [/^\$(?![\s\d]+\s)((?:\\.|[^$\\\n]){1,1000}?)(?<!\s)\$(?!\d)/, /^\\\(([\s\S]{1,1000}?)\\\)/], false),
  ],
});

/** Fills an element with the words; what is too long to be laid out stays plain text. */
export async function render(el, text) {
  const words = plain(text);
  if (words.length > LONG) {
    el.replaceChildren(long(words));
    return;
  }
  if (!katex && MATH.test(words)) {
    await import("../vendor/katex.js");
    katex = globalThis.katex;
  }
  el.innerHTML = DOMPurify.sanitize(marked.parse(words), RULES);
  for (const pre of el.querySelectorAll("pre")) pre.tabIndex = 0;
}

function long(words) {
  const shown = h("pre.raw", { tabindex: "0" }, words.slice(0, LONG));
  const more = h("button.small", { onclick: () => {
    shown.textContent = words;
    more.remove();
  } }, `Show all of it (${Math.round(words.length / 1000)} k characters)`);
  return h("div", {}, h("p.soft.small", {}, "A very long text, shown as it was written."), shown, h("p"), more);
}
