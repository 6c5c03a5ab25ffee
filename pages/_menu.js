// The menus of the navigation bar: all lessons on a narrow screen, the lessons of a group on a wide one.

const BAR = ".st-key-nav", GROUP = '[class*="st-key-nav_group_"]';

export default function ({ data, parentElement: box }) {
  const { text, name, kind, current } = data;
  const bar = box.closest(kind === "group" ? GROUP : BAR);
  const button = box.querySelector("button") || box.appendChild(document.createElement("button"));
  const open = (yes) => {
    bar.toggleAttribute("data-open", yes);
    button.setAttribute("aria-expanded", String(yes));
  };
  Object.assign(button, { type: "button", className: kind === "group" ? "kt-group" : "kt-menu", textContent: text });
  button.setAttribute("aria-label", name);
  button.toggleAttribute("data-current", current);
  open(false);
  button.onclick = () => open(!bar.hasAttribute("data-open"));
  const leave = (event) => !bar.contains(event.target) && open(false);
  const follow = (event) => event.target.closest("a") && open(false);
  const escape = (event) => {
    if (event.key !== "Escape" || !bar.hasAttribute("data-open")) return;
    open(false);
    button.focus();
  };
  const listeners = [[document, "pointerdown", leave], [document, "focusin", leave], [bar, "click", follow], [bar, "keydown", escape]];
  for (const [target, type, listen] of listeners) target.addEventListener(type, listen);
  return () => listeners.forEach(([target, type, listen]) => target.removeEventListener(type, listen));
}
