// The chapter beside the picture: how far the story is, its sentences, a guess, the way on.

import { element, fillText } from "./side_panel.js";

export const REVEALED = -1; // in place of a guess: the answer is shown without one

// Parts {text, role} of a sentence in which words of a role are written [text](role), a link to a lesson [text](/lesson), a
// term of the glossary [text](~term).
export function partsOf(sentence) {
  return sentence.split(/(\[[^\]]*\]\([/~]?\w+\))/).filter(Boolean).map((piece) => {
    const [, text, role] = piece.match(/^\[([^\]]*)\]\(([/~]?\w+)\)$/) || [];
    return text === undefined ? { text: piece, role: "" } : { text, role };
  });
}

function paragraph(sentence, className = "", chapter = {}) {
  const node = element("p", className);
  for (const part of partsOf(sentence)) {
    const { text, role } = part, span = element("span"), key = role.slice(1);
    if (role[0] === "/") node.append(linkTo(`${key}?view=story`, text));
    else if (role[0] === "~") node.append(termAfter(node.lastChild, term(key, text, chapter)));
    else {
      const end = node.lastChild?.className === "term" ? text.match(/^[^\s\w]*/)[0] : "";
      if (end) node.lastChild.append(end); // a full stop stays on the line of its term
      fillText(span, [{ ...part, text: text.slice(end.length) }]);
      node.append(span);
    }
  }
  return node;
}

// A bracket before a term stays on its line.
function termAfter(before, made) {
  if (!/[(“]$/.test(before?.textContent ?? "") || before.className) return made;
  made.prepend(before.textContent.slice(-1));
  before.textContent = before.textContent.slice(0, -1);
  return made;
}

const linkTo = (href, text, className = "") => Object.assign(element("a", className, text), { href });

// A term whose explanation opens by hover, focus and tap. Escape closes it (input.js).
function term(key, text, { terms, glossary }) {
  const node = element("span", "term"), button = pressable("term", key, "", text), tip = element("span", "tip", `${terms[key][0]} `);
  Object.assign(tip, { id: `term-${key}`, role: "tooltip" }).append(linkTo(terms[key][1], glossary));
  button.setAttribute("aria-describedby", tip.id);
  button.onclick = () => button.focus(); // a tap gives a button no focus in Safari
  node.append(button, tip);
  return node;
}

// Keeps which chapters of a lesson were open, for the first screen. It stays in the browser, if that allows it.
export function remember({ lesson, number }) {
  try {
    const seen = JSON.parse(localStorage.kernelTheatre || "{}");
    seen[lesson] = [...new Set([...(seen[lesson] || []), number])];
    localStorage.kernelTheatre = JSON.stringify(seen);
  } catch { /* no storage, or something else in it */ }
}

function pressable(name, value, className, ...inside) {
  const made = Object.assign(element("button", className), { type: "button" });
  made.dataset[name] = value;
  made.append(...inside);
  return made;
}

// Fills the panel; null hides it. `guess` is the index of the chosen answer, or null.
export function fillChapter(box, chapter, guess) {
  box.hidden = !chapter;
  if (!chapter) return;
  const { number, count, place, title, text, question, nudge, onward } = chapter;
  const progress = element("div", "chapter-progress"), bar = element("span", "chapter-dots");
  bar.append(...Array.from({ length: count }, (_, n) => element("i", n < number ? "done" : n === number ? "here" : "")));
  progress.append(bar, element("span", "dim", place));
  const way = element("div", "chapter-way");
  if (number) way.append(pressable("chapter", number - 1, "chip", chapter.back));
  if (chapter.next) way.append(pressable("chapter", number + 1, "primary", chapter.next));
  if (onward) way.append(linkTo(onward[1], onward[0], "primary"));
  const inside = element("div", "chapter-text");
  inside.append(...text.map((sentence) => paragraph(sentence, "", chapter)), ...(question ? questionPart(chapter, guess) : []));
  if (nudge && (!question || guess !== null)) inside.append(paragraph(nudge, "dim", chapter));
  replaceChanged(box, [progress, element("h2", "", title), inside, way]);
}

// Keeps what is the same: counts may arrive between the press and the release of a button, which must not be another one then.
function replaceChanged(box, made) {
  made.forEach((node, n) => {
    if (!box.children[n]) box.append(node);
    else if (!box.children[n].isEqualNode(node)) box.children[n].replaceWith(node);
  });
}

function questionPart(chapter, guess) {
  const { text, answers, right, reveal } = chapter.question;
  const list = element("div", "answers");
  list.classList.toggle("answered", guess !== null);
  list.setAttribute("role", "group");
  answers.forEach((answer, n) => {
    const mark = guess === null || right === null ? "" : n === right ? "✓" : n === guess ? "✗" : "";
    const choice = pressable("answer", n, `answer ${n === guess ? "chosen" : ""} ${mark === "✓" ? "right" : ""}`, answer, element("span", "", mark));
    choice.setAttribute("aria-pressed", String(n === guess));
    list.append(choice);
  });
  const figures = paragraph(guess === null ? "" : reveal, "reveal", chapter);
  figures.setAttribute("role", "status");
  return [paragraph(text, "question", chapter), list, figures];
}
