// Before anything is loaded: whether this browser can show the site, and words if it cannot.
(function () {
  var say = function (text) {
    var place = document.querySelector("[data-testid=stMainBlockContainer]");
    place.textContent = "";
    var words = document.createElement("p");
    words.className = "kt-note";
    words.setAttribute("role", "status");
    words.textContent = text;
    place.appendChild(words);
  };
  document.querySelector("base").href = document.baseURI; // absolute: it stays when the address changes
  if (location.protocol === "file:")
    return say("A browser loads no parts of a page from a folder. Serve the folder of this site: python -m http.server, then open http://localhost:8000.");
  if (!("DecompressionStream" in window) || !("noModule" in document.createElement("script")) || !HTMLElement.prototype.hasOwnProperty("popover"))
    return say("This browser is too old for this site. It needs Chrome 114, Firefox 125, Safari 17 or newer.");
  var script = document.createElement("script");
  script.type = "module";
  script.src = document.getElementById("boot").getAttribute("data-script");
  script.onerror = function () { say("A file of this site is missing (its script). It may have been published only in part."); };
  document.head.appendChild(script);
})();
