// The component that Streamlit mounts. It loads the player once a browser and hands it each message. Until the player is
// there, and if it cannot be loaded, the stage's place says so. It is small, because Streamlit sends it with each rerun.

const FILE = "stage/PLAYER_FILE"; // its name has the hash of its content, so that the browser keeps it
const latest = new WeakMap(); // by element: the arguments of its last call

let loading = null, failures = 0;

// Where the app may be: front.py knows it of a page that was opened by its URL; else it is beside the page.
const bases = () => [...new Set([window.__streamlit?.BACKEND_BASE_URL, document.baseURI].filter(Boolean))];

// A browser may remember a failure of a URL: the next attempt has another one.
async function load() {
  let failure;
  for (const base of bases()) {
    try {
      return await import(new URL(failures ? `${FILE}?again=${failures}` : FILE, base).href);
    } catch (error) {
      failure = error;
    }
  }
  failures += 1;
  loading = null;
  throw failure;
}

// The texts of this file are in the catalog that each message brings.
function translator(data) {
  try {
    const length = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
    const { texts } = JSON.parse(new TextDecoder().decode(data.subarray(8, 8 + length)));
    return (message) => texts?.texts?.[message] ?? message;
  } catch {
    return (message) => message;
  }
}

function showFailure(place, tr, retry) {
  const text = document.createElement("p"), button = document.createElement("button");
  text.setAttribute("role", "alert");
  text.textContent = tr("The stage cannot be shown: its player could not be loaded from the app's server. Load the page again if this stays.");
  Object.assign(button, { type: "button", textContent: tr("Try again"), onclick: retry });
  place.replaceChildren(text, button);
}

function fill(place, { html, css }) {
  const style = document.createElement("style");
  style.textContent = css;
  place.innerHTML = html;
  place.prepend(style);
}

// Streamlit calls this on mount and whenever data or theme change. A call that waited for the player while a newer one
// came does nothing: what it returns would close the newer one's stage.
export default async function show(args) {
  const { parentElement, data } = args, place = parentElement.querySelector(".stage-place");
  latest.set(parentElement, args);
  let player;
  try {
    player = await (loading ||= load());
  } catch {
    if (latest.get(parentElement) === args) showFailure(place, translator(data), () => show(args));
    return () => place.querySelector(".stage")?.player?.close(); // of a later attempt
  }
  if (latest.get(parentElement) !== args) return;
  if (!place.querySelector(".stage")) fill(place, player);
  return player.default(args);
}
