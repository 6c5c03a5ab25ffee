// The list of runs: a table with two columns of links that choose A and B. Texts may be imported from other people, so
// they are set as textContent only.
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
  const { lines, chosen, page, pages } = data;
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
    a.setAttribute("aria-label", `${on ? "let go of" : "take as"} ${letter}: ${line.what}, ${line.shape}, ${line.time}`);
    a.dataset.id = line.id;
    return a;
  };
  const row = (line) => {
    const tr = create("tr", Object.values(chosen).includes(line.id) ? "kt-chosen" : "");
    const badge = create("span", `kt-badge kt-badge-${line.kind}`, line.kind);
    tr.append(
      create("td", "kt-picks", pick("A", "run", line), pick("B", "against", line)),
      create("td", "kt-what", create("b", "", line.what), create("span", "", line.shape)),
      create("td", "kt-where", create("div", "", badge, ` ${line.device}`), create("span", "", line.when)),
      create("td", "kt-when", create("b", "", line.time), create("span", "", line.spread)),
    );
    return tr;
  };
  const head = create("tr");
  for (const [label, name] of [["pick", "kt-picks"], ["run", "kt-what"], ["where, when", "kt-where"], ["median", "kt-when"]]) {
    const th = create("th", name, label);
    th.scope = "col";
    head.append(th);
  }
  // The narrow layout makes a grid of each row; without roles a screen reader would no longer see a table.
  const setRole = (tag, role) => list.querySelectorAll(tag).forEach((element) => element.setAttribute("role", role));
  const table = create("table", "kt-rows", create("thead", "", head), create("tbody", "", ...lines.map(row)));
  const pager = create("nav", "kt-turn");
  pager.setAttribute("aria-label", "pages of the list");
  if (pages > 1) {
    const pageLink = (n, label) => (n >= 1 && n <= pages ? link({ page: n > 1 ? String(n) : "" }, "", label) : create("span", "", label));
    pager.append(pageLink(page - 1, "newer"), create("span", "kt-at", `page ${page} of ${pages}`), pageLink(page + 1, "older"));
  }
  const focused = document.activeElement?.closest?.(".kt-list") && document.activeElement; // keeps the focus when rows are replaced
  const selector = focused && `[data-id="${focused.dataset.id}"].${[...focused.classList].join(".")}`;
  parentElement.querySelector(".kt-list")?.remove();
  const list = create("div", "kt-list", table, pager);
  list.dataset.page = page;
  Object.entries({ table: "table", "thead, tbody": "rowgroup", tr: "row", th: "columnheader", td: "cell" }).forEach((pair) => setRole(...pair));
  parentElement.append(list);
  if (selector && focused.dataset.id) list.querySelector(selector)?.focus({ preventScroll: true });
}
