// A button for each file of the page; a click saves the file.

function save({ name, kind, text }) {
  const href = URL.createObjectURL(new Blob([text], { type: kind }));
  Object.assign(document.createElement("a"), { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000); // Safari reads it later
}

export default function ({ data, parentElement }) {
  for (const [at, file] of data.entries()) {
    const button = parentElement.querySelectorAll("button")[at] || parentElement.appendChild(document.createElement("button"));
    Object.assign(button, { type: "button", className: "kt-save", textContent: file.label, onclick: () => save(file) });
  }
}
