// Messages with the page that embeds the stage: a slide deck, a course. It receives, as JSON, the step of the stage and
// requests to go on. It may send {stage: "goto", step}, {stage: "step", by}, {stage: "play"}, {stage: "pause"} or
// {stage: "answer"}, which shows the answer of a chapter's question.

import { tr } from "./texts.js";

export const embedded = globalThis.parent !== globalThis.self; // equal if not embedded, and in Node

// The element with this test id, of Streamlit, that the stage is in; none where another page shows the stage.
export const pagePart = (root, id) => [root, root.getRootNode().host].map((node) => node?.closest?.(`[data-testid=${id}]`)).find(Boolean);

// Reveal.js understands "method" without further code.
export function report(type, step, steps) {
  const method = type === "next" || type === "prev" ? { method: type } : {};
  if (embedded) window.parent.postMessage(JSON.stringify({ ...method, stage: type, step, steps }), "*");
}

// The request in a message: {goto} | {by} | {play} | {answer}; null if it is not for a stage; an Error if it is invalid.
export function readMessage(data) {
  if (data === "slide:stop") return { play: false }; // Reveal.js leaves the slide
  if (typeof data === "string") {
    if (data.length > 1000 || !data.startsWith("{")) return null;
    try {
      data = JSON.parse(data);
    } catch {
      return null;
    }
  }
  if (!data || typeof data !== "object" || typeof data.stage !== "string") return null;
  const { stage, step, by = 1 } = data;
  if (stage === "goto" && Number.isInteger(step)) return { goto: step };
  if (stage === "step" && Number.isInteger(by)) return { by };
  if (stage === "play" || stage === "pause") return { play: stage === "play" };
  if (stage === "answer") return { answer: true };
  return new Error(tr("A message to the stage must be goto with a whole step, step with a whole “by”, play, pause or answer."));
}

// Only messages of the embedding page are accepted.
export function listenToParent(on, act, reject) {
  on(window, "message", (event) => {
    const request = readMessage(event.data);
    if (!request) return;
    if (!embedded || event.source !== window.parent) reject(tr("A message was ignored: it did not come from the embedding page."));
    else if (request instanceof Error) reject(request.message);
    else act(request);
  });
}
