// A listing: numbered lines, comments and words of the language in colours of their own.

const WORDS = "alignas asm auto bool break case char const constexpr continue default do double else enum extern false float for goto if inline int long namespace operator private public register return short signed sizeof static struct switch template this true typedef typename union unsigned using void volatile while __global__ __device__ __shared__ __restrict__ __launch_bounds__ __syncthreads __host__";
const KNOWN = new Set(WORDS.split(" "));
const PIECES = /(\/\/[^\n]*|\/\*[\s\S]*?\*\/)|("(?:[^"\\\n]|\\.)*")|(^[ \t]*#[^\n]*)|([A-Za-z_]\w*)|(\b\d[\w.]*)/gm;

export function listing({ text, language }) {
  const pre = document.createElement("pre"), code = document.createElement("code");
  code.className = "site-code";
  let at = 0;
  const add = (piece, kind) => {
    if (!kind) return code.append(piece);
    const span = document.createElement("span");
    span.className = `site-${kind}`;
    span.textContent = piece;
    code.append(span);
  };
  for (const found of language === "cpp" ? text.matchAll(PIECES) : []) {
    const [piece, comment, string, directive, word, number] = found;
    const kind = comment ? "comment" : string ? "string" : directive ? "directive" : number ? "number" : KNOWN.has(word) ? "word" : "";
    if (!kind) continue;
    add(text.slice(at, found.index), "");
    add(piece, kind);
    at = found.index + piece.length;
  }
  add(text.slice(at), "");
  const numbers = document.createElement("span");
  numbers.className = "site-numbers";
  numbers.setAttribute("aria-hidden", "true");
  numbers.textContent = Array.from({ length: text.replace(/\n$/, "").split("\n").length }, (_, n) => n + 1).join("\n");
  pre.append(numbers, code);
  const box = document.createElement("div");
  box.dataset.testid = "stCode";
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Kernel");
  box.append(pre);
  return box;
}
