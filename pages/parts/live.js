// HTML that is replaced when the server has news of what the page waits for. A stage on the page asks for it, and tells of
// each answer by an event; without a stage this asks itself.

const MAX_FAILURES = 5, RETRY_MS = 2000;

const url = (path) => new URL(path, window.__streamlit?.BACKEND_BASE_URL || document.baseURI);

async function ask(path, signal, show) {
  for (let tag = "", failures = 0; failures < MAX_FAILURES; ) {
    try {
      const answer = await (await fetch(url(`${path}?seen=${tag}`), { signal })).json();
      if (answer.gone) return;
      [tag, failures] = [answer.tag, 0];
      show(answer);
      if (answer.done) return;
    } catch {
      if (signal.aborted) return;
      failures += 1;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS * failures));
    }
  }
}

// What the reader has unfolded stays so.
function fill(box, html) {
  if (box.text === html) return;
  const open = [...box.querySelectorAll("details")].map((part) => part.open);
  box.text = html;
  box.innerHTML = html;
  box.querySelectorAll("details").forEach((part, n) => { part.open = open[n] ?? part.open; });
}

export default function ({ data, parentElement }) {
  const box = parentElement.querySelector(".kt-live") || parentElement.appendChild(Object.assign(document.createElement("div"), { className: "kt-live stHtml" }));
  const { html, part, watch, alone } = data;
  if (box.watch !== watch || box.html !== html) fill(box, html);
  box.html = html;
  if (box.watch === watch) return box.leave;
  box.leave?.();
  box.watch = watch;
  const closed = new AbortController(), show = (answer) => { if (answer[part] !== undefined) fill(box, answer[part]); };
  box.leave = () => closed.abort();
  if (!watch) return box.leave;
  window.addEventListener("kernel-theatre", ({ detail }) => detail.watch === watch && show(detail), { signal: closed.signal });
  if (alone) ask(watch, closed.signal, show);
  return box.leave;
}
