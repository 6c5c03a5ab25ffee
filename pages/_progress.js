// How many chapters of a lesson this browser has shown, as visuals/stage/chapter.js keeps them. Without storage: none.

function chaptersSeen(path, count) {
  try {
    return new Set(JSON.parse(localStorage.kernelTheatre)[path].filter((n) => Number.isInteger(n) && n >= 0 && n < count)).size;
  } catch {
    return 0;
  }
}

export default function ({ data: { path, count, none, some, rest }, parentElement }) {
  const line = parentElement.querySelector("p") || parentElement.appendChild(document.createElement("p")), seen = chaptersSeen(path, count);
  line.className = "kt-quiet";
  line.textContent = [seen ? some.replace("{seen}", seen) : none, ...rest].filter(Boolean).join(" · ");
}
