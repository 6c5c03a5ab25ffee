// The tools at the end of the bar: search by text, and the theme.

import { json } from "./load.js";

const MAX_FOUND = 30;

// What holds all the words, those with the words in their title first: [address, title, text] each.
export function search(entries, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const score = ([, title, text]) => {
    const [head, all] = [title.toLowerCase(), `${title} ${text}`.toLowerCase()];
    if (!words.every((word) => all.includes(word))) return 0;
    return 1 + words.filter((word) => head.includes(word)).length;
  };
  return entries.map((entry) => [score(entry), entry]).filter(([points]) => points)
    .sort(([a], [b]) => b - a).slice(0, MAX_FOUND).map(([, entry]) => entry);
}

// The part of a text around the first of the words.
export function excerpt(text, query, length = 160) {
  const at = Math.max(0, Math.min(...query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => text.toLowerCase().indexOf(word)).filter((n) => n >= 0), text.length));
  const from = at < text.length ? Math.max(0, at - 50) : 0;
  return `${from ? "…" : ""}${text.slice(from, from + length).trim()}${from + length < text.length ? "…" : ""}`;
}

const made = (name, properties, ...inside) => {
  const one = Object.assign(document.createElement(name), properties);
  one.append(...inside);
  return one;
};

function dialogOf(site) {
  const field = made("input", { type: "search", placeholder: "Search lessons and terms", autocomplete: "off" });
  field.setAttribute("aria-label", "Search lessons and terms");
  const list = made("ol", { className: "site-found" }), status = made("p", { className: "kt-quiet" });
  status.setAttribute("role", "status");
  const dialog = made("dialog", { className: "site-search" }, made("form", { method: "dialog" }, field, made("button", { textContent: "Close" })), status, list);
  let entries = null;
  const update = async () => {
    try {
      entries ||= await json(site.search);
    } catch (error) {
      status.textContent = error.message;
      return;
    }
    const found = search(entries, field.value);
    status.textContent = field.value.trim() ? `${found.length}${found.length === MAX_FOUND ? " or more" : ""} found` : "";
    list.replaceChildren(...found.map(([address, title, text]) => {
      const [path, query] = address.split("?");
      const link = made("a", { href: site.url(path, Object.fromEntries(new URLSearchParams(query))) }, made("b", { textContent: title }), made("span", { textContent: ` ${site.pages[path].title}` }));
      link.onclick = () => dialog.close();
      return made("li", {}, link, made("p", { className: "kt-quiet", textContent: excerpt(text, field.value) }));
    }));
  };
  field.oninput = update;
  dialog.firstChild.onsubmit = (event) => {
    if (event.submitter) return;
    event.preventDefault();
    list.querySelector("a")?.click();
  };
  dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); }; // to return false would end a click on a link
  document.body.append(dialog);
  return { open: () => { dialog.showModal(); field.select(); update(); } };
}

let dialog = null;

export function addTools(site) {
  const bar = document.querySelector(".st-key-nav_tools");
  if (!bar || bar.querySelector(".site-tool")) return;
  const open = () => (dialog ||= dialogOf(site)).open();
  const find = made("button", { type: "button", className: "site-tool", textContent: "Search", onclick: open });
  const theme = made("button", { type: "button", className: "site-tool site-theme", onclick: () => site.turnTheme() });
  theme.setAttribute("aria-label", "Light or dark");
  bar.append(find, theme);
}

document.addEventListener("keydown", (event) => {
  const typed = event.composedPath().some((one) => /^(input|textarea|select)$/.test(one.localName || ""));
  if (event.key === "/" && !typed && !event.ctrlKey && !event.metaKey) {
    const button = document.querySelector(".site-tool");
    if (button) {
      event.preventDefault();
      button.click();
    }
  }
});
