// The kernel pane: CUDA source with its running line lit, and words with roles. Text only, never markup.

const CUDA_WORDS = new RegExp([
  String.raw`(?<comment>\/\/[^\n]*|\/\*[\s\S]*?\*\/)`,
  String.raw`(?<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')`,
  String.raw`(?<directive>^[ \t]*#[^\n]*)`,
  String.raw`(?<keyword>\b(?:extern|__global__|__device__|__host__|__shared__|__restrict__|__launch_bounds__|__syncthreads|const|constexpr|static|inline|template|typename|struct|return|if|else|for|while|do|break|continue|switch|case|sizeof|using|namespace|true|false)\b)`,
  String.raw`(?<type>\b(?:void|bool|char|short|int|long|unsigned|signed|float|double|half|float2|float4|int2|int4|dim3|size_t|u?int(?:8|16|32|64)_t)\b)`,
  String.raw`(?<builtin>\b(?:threadIdx|blockIdx|blockDim|gridDim|warpSize)\b)`,
].join("|"), "gm");

// Source -> lines of {text, kind}; a comment over several lines is one kind on each.
function colourSource(text) {
  const lines = [[]];
  const put = (piece, kind) => piece.split("\n").forEach((line, n) => {
    if (n) lines.push([]);
    if (line) lines[lines.length - 1].push({ text: line, kind });
  });
  let from = 0;
  for (const m of text.matchAll(CUDA_WORDS)) {
    put(text.slice(from, m.index), "");
    put(m[0], Object.keys(m.groups).find((kind) => m.groups[kind] !== undefined));
    from = m.index + m[0].length;
  }
  put(text.slice(from).replace(/\n+$/, ""), "");
  return lines;
}

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function fillSource(list, { text, first, notes }) {
  list.replaceChildren(...colourSource(text).map((line, n) => {
    const row = element("li", "code-line");
    row.dataset.line = n + first;
    const code = element("code");
    for (const { text: piece, kind } of line) code.append(kind ? element("span", `c-${kind}`, piece) : piece);
    row.append(element("span", "line-number", String(n + first)), code);
    if (notes?.[n + first]) row.append(element("span", "line-note", notes[n + first]));
    return row;
  }));
}

// Light one line and bring it into view inside the list, never scrolling the page.
function lightLine(list, line) {
  const row = list.querySelector(`[data-line="${line}"]`);
  if (row?.classList.contains("lit")) return;
  list.querySelector(".lit")?.classList.remove("lit");
  if (!row) return;
  row.classList.add("lit");
  const top = row.offsetTop - list.offsetTop, bottom = top + row.offsetHeight;
  if (top < list.scrollTop) list.scrollTop = top - 2 * row.offsetHeight;
  else if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight + 2 * row.offsetHeight;
}

// The lanes of the warp a step follows: lit where they take part.
function fillLanes(box, lanes, step) {
  const warp = lanes ? lanes.warp[step] : -1;
  box.hidden = warp < 0;
  if (box.hidden) return;
  const on = Array.from({ length: 32 }, (_, lane) => (lanes.mask[step] >>> lane) & 1);
  box.firstElementChild.textContent = `lanes of warp ${warp}: ${on.reduce((a, b) => a + b)} of 32 active`;
  box.lastElementChild.replaceChildren(...on.map((active, lane) => element("li", active ? "lane active" : "lane", String(lane))));
}

// Parts {text, role} as coloured spans; "\n" at a part's start opens a new line.
function fillWords(node, parts) {
  const roles = new Set(["input", "filter", "output", "workspace"]);
  node.replaceChildren(...parts.flatMap(({ text, role }) => {
    const broken = text.startsWith("\n");
    const words = broken ? text.slice(1) : text;
    const span = role ? element("span", roles.has(role) ? `role role-${role}` : `w-${role}`, words) : document.createTextNode(words);
    return broken ? [element("br"), span] : [span];
  }));
}
