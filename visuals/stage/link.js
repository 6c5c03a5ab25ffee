// The step in the address. Streamlit rewrites the query too: widgets bound to it read the address, change
// their own parameter and keep ours; but after a rerun it may push a query it remembered from before our last
// step. So the stage changes only its own parameter, text for text, and puts it back where it was overwritten.

function stepInLink(param) {
  const found = param && new URLSearchParams(location.search).get(param);
  return found && /^\d{1,9}$/.test(found) ? Number(found) : null;
}

function writeStepInLink(param, step) {
  if (!param || stepInLink(param) === (step || null)) return;
  const rest = location.search.slice(1).split("&").filter((pair) => pair && pair.split("=")[0] !== param);
  if (step) rest.push(`${param}=${step}`); // step 0 is the plain page
  const query = rest.length ? `?${rest.join("&")}` : "";
  try {
    history.replaceState(history.state, "", location.pathname + query + location.hash);
  } catch { /* a sandboxed frame, or too many changes a second: the picture does not depend on it */ }
}

// Calls back when the query changed under us: "moved" by Back or Forward, else "overwritten".
function watchLink(on, callback) {
  const home = location.pathname;
  const here = () => location.pathname === home; // on the way to another page its address is not ours
  on(window, "popstate", () => here() && callback("moved"));
  if (window.navigation)
    on(window.navigation, "currententrychange", (event) => here() && event.navigationType !== "traverse" && callback("overwritten"));
}
