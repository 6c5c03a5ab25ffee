// Waiting for what the page measures or counts. The player asks the server once, the answer comes when there is news, and
// the strip shows it without a rerun of the page. Other parts of the page learn of each answer by an event.

const FIRST_MS = 300; // a control that changes quickly asks for its last value only
const RETRY_MS = 2000, MAX_FAILURES = 5, COLLECT_MS = 3000, MAX_COLLECTS = 20;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Follows what a message's strip names; "" ends it. A message that names the same keeps the news.
export function follow(player, path) {
  const { watched } = player;
  if (watched?.path === path) {
    if (watched.strip) player.data = { ...player.data, strip: { ...watched.strip, watch: path } };
    return;
  }
  watched?.closed.abort();
  player.watched = path && !player.assets ? { path, closed: new AbortController(), strip: null } : null;
  if (player.watched) ask(player, player.watched);
}

async function ask(player, watched) {
  const { signal } = watched.closed, name = watched.path.split("/").pop();
  await pause(FIRST_MS);
  for (let tag = "", failures = 0; failures < MAX_FAILURES && !signal.aborted; ) {
    try {
      const response = await fetch(new URL(`watch/${name}?seen=${tag}`, import.meta.url), { signal }), answer = await response.json();
      if (answer.gone) return;
      [tag, failures] = [answer.tag, 0];
      showNews(player, watched, answer);
      if (answer.done) return answer.strip || collect(player, watched);
    } catch {
      failures += 1;
      await pause(RETRY_MS * failures);
    }
  }
}

function showNews(player, watched, answer) {
  const { strip } = player.data;
  if (answer.strip) {
    watched.strip = answer.strip;
    player.data = { ...player.data, strip: { ...answer.strip, watch: watched.path } };
  } else if (answer.share !== undefined) {
    player.data = { ...player.data, strip: { ...strip, run: { ...strip.run, share: answer.share, text: answer.text } } };
  }
  player.showSize(player.size);
  window.dispatchEvent(new CustomEvent("kernel-theatre", { detail: { ...answer, watch: watched.path } }));
}

// The page takes the result in a rerun, which is requested until the page waits for something else: one that comes while
// the address changes is dropped.
async function collect(player, watched) {
  for (let n = 0; n < MAX_COLLECTS && player.watched === watched; n++) {
    player.send?.({ do: "collect" });
    await pause(COLLECT_MS);
  }
}
