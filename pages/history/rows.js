// The list of runs: the lessons with their shapes, and a table with links that choose A and B. Texts may be imported
// from other people, so they are set as textContent only.
const create = (tag, name, ...inside) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...inside);
  return element;
};

/** Return the query with some parameters set, or left out if they are "". */
const queryWith = (change) => {
  const params = new URLSearchParams(window.location.search);
  for (const [name, value] of Object.entries(change)) value ? params.set(name, value) : params.delete(name);
  return `?${params}`;
};

export default function ({ data, parentElement, setTriggerValue }) {
  const { lines, lessons, back, all, chosen, page, pages, texts } = data;
  const link = (change, name, ...inside) => {
    const a = create("a", name, ...inside);
    a.href = queryWith(change);
    a.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return; // opens a new tab
      event.preventDefault();
      setTriggerValue("go", change);
    });
    return a;
  };
  const pick = (letter, param, line) => {
    const on = chosen[param] === line.id;
    const a = link({ [param]: on ? "" : line.id }, `kt-pick kt-pick-${letter}`, letter);
    if (on) a.setAttribute("aria-current", "true");
    a.setAttribute("aria-label", texts[on ? "drop" : "take"].replace("{letter}", letter).replace("{run}", () => `${line.what}, ${line.shape}, ${line.time}`));
    a.dataset.id = line.id;
    return a;
  };
  const row = (line) => {
    const tr = create("tr", Object.values(chosen).includes(line.id) ? "kt-chosen" : "");
    const badge = create("span", `kt-badge kt-badge-${line.kind}`, texts[`kinds_${line.kind}`]);
    tr.append(
      create("td", "kt-picks", pick("A", "run", line), pick("B", "against", line)),
      create("td", "kt-what", create("b", "", line.what), create("span", "", line.shape)),
      create("td", "kt-where", create("div", "", badge, ` ${line.device}`), create("span", "", line.when), ...(line.disturbed ? [create("span", "kt-disturbed", line.disturbed)] : [])),
      create("td", "kt-when", create("b", "", line.time), create("span", "", line.spread)),
    );
    return tr;
  };
  const head = create("tr");
  for (const [label, name] of [["pick", "kt-picks"], ["run", "kt-what"], ["where", "kt-where"], ["median", "kt-when"]]) {
    const th = create("th", name, texts[label]);
    th.scope = "col";
    head.append(th);
  }
  // The narrow layout makes a grid of each row; without roles a screen reader would no longer see a table.
  const setRole = (tag, role) => list.querySelectorAll(tag).forEach((element) => element.setAttribute("role", role));
  const table = create("table", "kt-rows", create("thead", "", head), create("tbody", "", ...lines.map(row)));
  const pager = create("nav", "kt-turn");
  pager.setAttribute("aria-label", texts.pages);
  if (pages > 1) {
    const pageLink = (n, label) => (n >= 1 && n <= pages ? link({ page: n > 1 ? String(n) : "" }, "", label) : create("span", "", label));
    pager.append(pageLink(page - 1, texts.newer), create("span", "kt-at", texts.page), pageLink(page + 1, texts.older));
  }
  const open = new Set([...parentElement.querySelectorAll(".kt-lesson[open]")].map((element) => element.dataset.title)); // survive a rerun
  const section = ({ title, about, groups }) => {
    const summary = create("summary", "", create("b", "", title), ` ${about}`);
    const item = (group) => create("li", "", link({ group: group.key, page: "" }, "", group.shape), create("span", "", group.about));
    const details = create("details", "kt-lesson", summary, create("ul", "", ...groups.map(item)));
    details.dataset.title = title;
    details.open = open.has(title);
    return details;
  };
  const parts = back ? [create("p", "kt-to", link({ group: "", page: "" }, "", back))] : [];
  if (lines.length && lessons.length) parts.push(create("h2", "kt-label", texts.here));
  if (lines.length) parts.push(table, pager);
  parts.push(...lessons.map(section));
  if (all) parts.push(create("p", "kt-to", link({ group: "all", page: "" }, "", all)));
  const focused = document.activeElement?.closest?.(".kt-list") && document.activeElement; // keeps the focus when rows are replaced
  const selector = focused && `[data-id="${focused.dataset.id}"].${[...focused.classList].join(".")}`;
  parentElement.querySelector(".kt-list")?.remove();
  const list = create("div", "kt-list", ...parts);
  list.dataset.page = page;
  Object.entries({ table: "table", "thead, tbody": "rowgroup", tr: "row", th: "columnheader", td: "cell" }).forEach((pair) => setRole(...pair));
  parentElement.append(list);
  if (selector && focused.dataset.id) list.querySelector(selector)?.focus({ preventScroll: true });
}
