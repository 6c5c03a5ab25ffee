// The list of runs: a table with two columns of links that choose A and B. Texts may come from anywhere, so they are set
// as textContent only.
const make = (tag, name, ...inside) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...inside);
  return element;
};

/** Return the query with some parameters set, or left out if they are "". */
const address = (change) => {
  const params = new URLSearchParams(window.location.search);
  for (const [name, value] of Object.entries(change)) value ? params.set(name, value) : params.delete(name);
  return `?${params}`;
};

export default function ({ data, parentElement, setTriggerValue }) {
  const { lines, chosen, page, pages } = data;
  const link = (change, name, ...inside) => {
    const a = make("a", name, ...inside);
    a.href = address(change);
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
    const tr = make("tr", Object.values(chosen).includes(line.id) ? "kt-chosen" : "");
    const badge = make("span", `kt-badge kt-badge-${line.kind}`, line.kind);
    tr.append(
      make("td", "kt-picks", pick("A", "run", line), pick("B", "against", line)),
      make("td", "kt-what", make("b", "", line.what), make("span", "", line.shape)),
      make("td", "kt-where", make("div", "", badge, ` ${line.device}`), make("span", "", line.when)),
      make("td", "kt-when", make("b", "", line.time), make("span", "", line.spread)),
    );
    return tr;
  };
  const head = make("tr");
  for (const [words, name] of [["pick", "kt-picks"], ["run", "kt-what"], ["where, when", "kt-where"], ["median", "kt-when"]]) {
    const th = make("th", name, words);
    th.scope = "col";
    head.append(th);
  }
  // The narrow layout makes a grid of each row; without roles a screen reader would no longer see a table.
  const told = (tag, role) => list.querySelectorAll(tag).forEach((element) => element.setAttribute("role", role));
  const table = make("table", "kt-rows", make("thead", "", head), make("tbody", "", ...lines.map(row)));
  const turn = make("nav", "kt-turn");
  turn.setAttribute("aria-label", "pages of the list");
  if (pages > 1) {
    const to = (n, words) => (n >= 1 && n <= pages ? link({ page: n > 1 ? String(n) : "" }, "", words) : make("span", "", words));
    turn.append(to(page - 1, "newer"), make("span", "kt-at", `page ${page} of ${pages}`), to(page + 1, "older"));
  }
  const held = document.activeElement?.closest?.(".kt-list") && document.activeElement; // keeps the focus when rows are replaced
  const same = held && `[data-id="${held.dataset.id}"].${[...held.classList].join(".")}`;
  parentElement.querySelector(".kt-list")?.remove();
  const list = make("div", "kt-list", table, turn);
  list.dataset.page = page;
  Object.entries({ table: "table", "thead, tbody": "rowgroup", tr: "row", th: "columnheader", td: "cell" }).forEach((pair) => told(...pair));
  parentElement.append(list);
  if (same && held.dataset.id) list.querySelector(same)?.focus({ preventScroll: true });
}
