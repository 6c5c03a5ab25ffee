// Code of the panels "take away" and "link": makes a file or a text from the player's scene. Loaded with takeaway.js
// on first use.

import { makeFile } from "./takeaway.js";
import { count, tr, useTexts } from "./texts.js";

// By panel: a function of (player, name of the button, URLs of the server's files, function that shows a status).
export const panels = { take: toFile, link: toClipboard };

async function toFile(player, kind, assets, show) {
  const { scene, data, inView, theme, font, msPerStep, loop } = player;
  useTexts(data.texts); // this module has its own copy of texts.js
  const { blob, name, note } = await makeFile(kind, {
    scene, strip: player.stripSize(), head: data, block: data.block, read: player.reader(data.block), step: player.step, range: loop?.[1] === undefined ? [0, scene.steps - 1] : loop,
    width: inView.width, height: inView.height, theme, font, msPerStep, assets, signal: player.closed.signal,
    caption: (step) => player.captionOf(step), paint: (ctx, t) => player.paint(ctx, t), progress: (part) => show(`${Math.round(100 * part)} %`),
  });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  show(note || tr("{name}, {size} KB", { name, size: count(Math.ceil(blob.size / 1000)) }));
}

// The copied text is also displayed, because a browser may refuse the clipboard.
async function toClipboard({ root, scene, data }, name, assets, show) {
  useTexts(data.texts);
  const box = root.querySelector(".copied");
  box.hidden = false;
  box.value = shareTexts(location.href, scene, data.chapter)[name];
  try {
    await navigator.clipboard.writeText(box.value);
    show(tr("Copied."));
  } catch {
    box.select();
    show(tr("The browser did not allow copying. Copy the text above."));
  }
}

const quoted = (text) => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");

// The URL, an iframe for a page, a section for a Reveal deck; of the open chapter, if there is one. The version lets an
// older app detect a newer link.
export function shareTexts(href, { title, version }, chapter = null) {
  const link = new URL(href);
  link.searchParams.set("version", version);
  if (chapter) link.searchParams.set("view", "story");
  if (chapter) link.searchParams.set("chapter", chapter.number + 1);
  const framed = new URL(link);
  framed.searchParams.set("embed", "true");
  if (!chapter) framed.searchParams.set("view", "watch");
  const frame = (source, more) =>
    `<iframe ${source}="${quoted(framed.href)}" title="${quoted("Kernel Theatre: " + title)}" ${more} allow="fullscreen; clipboard-write"></iframe>`;
  const iframe = frame("src", 'width="100%" height="640" style="border:0"');
  framed.searchParams.set("present", "1");
  const slide = frame("data-src", 'style="width:100%;height:90vh;border:0"');
  return { link: link.href, iframe, slide: `<section>\n  ${slide}\n</section>` };
}
