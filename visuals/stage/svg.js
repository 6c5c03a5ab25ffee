// A canvas that writes SVG. Joined with takeaway.js; measure(text, font) is the width of a text.

// No template may be within another template here: the minifier cannot handle it.

export const escaped = (text) => String(text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "")
  .replace(/[&<>"]/g, (c) => `&${{ "&": "amp", "<": "lt", ">": "gt", '"': "quot" }[c]};`);
const round = (v) => Math.round(v * 100) / 100;
const hex = (colour) => colour.replace(/^rgb\((\d+),\s*(\d+),\s*(\d+)\)$/, (_, ...c) =>
  `#${c.slice(0, 3).map((v) => (+v).toString(16).padStart(2, "0")).join("")}`);
const opacity = (alpha) => (alpha < 1 ? round(alpha) : null);
const box = (l, t, r, b) => ({ x: l, y: t, width: round(r - l), height: round(b - t) });
const attribute = ([name, value]) => ` ${name}="${escaped(value)}"`;
// An element; attributes without a value are left out.
function tag(name, attributes, inside) {
  const all = Object.entries(attributes).filter(([, value]) => value != null).map(attribute).join("");
  return inside === undefined ? `<${name}${all}/>` : `<${name}${all}>${inside}</${name}>`;
}
const STATE = { fillStyle: "#000000", strokeStyle: "#000000", lineWidth: 1, globalAlpha: 1, font: "400 10px sans-serif",
  textAlign: "left", textBaseline: "alphabetic" };
const ANCHORS = { center: "middle", right: "end", end: "end" };
const BASELINE_SHIFT = { middle: 0.35, top: 0.8, bottom: -0.2 }; // baselines as shares of the font size: few tools support SVG's dominant-baseline

// The part of CanvasRenderingContext2D that the stage uses. Transforms are only scales and translations. Small
// rectangles filled row by row, as cells are, become one path per colour.
export class SvgContext {
  constructor(measure) {
    Object.assign(this, STATE, { vector: true, measure, out: [], defs: [], dash: [], transform: [1, 0, 0], path: [], saved: [], open: 0, family: "" });
    this.reset();
  }

  // Transforms
  setTransform(a, b, c, d, e, f) { this.transform = a.a === undefined ? [a, e, f] : [a.a, a.e, a.f]; }
  resetTransform() { this.transform = [1, 0, 0]; }
  translate(x, y) { const [s, dx, dy] = this.transform; this.transform = [s, dx + s * x, dy + s * y]; }
  scale(by) { const [s, dx, dy] = this.transform; this.transform = [s * by, dx, dy]; }
  save() { this.saved.push([Object.fromEntries(Object.keys(STATE).map((name) => [name, this[name]])), this.dash, this.transform, this.open]); }
  restore() {
    if (!this.saved.length) return;
    const [state, dash, transform, open] = this.saved.pop();
    Object.assign(this, state, { dash, transform });
    for (this.flush(); this.open > open; this.open--) this.out.push("</g>");
  }
  setLineDash(dash) { this.dash = [...dash]; }
  getLineDash() { return this.dash; }
  measureText(text) { return { width: this.measure(text, this.font) }; }

  // A rectangle by its rounded sides, so that neighbours touch: [left, top, right, bottom].
  sides(x, y, w, h) {
    const [s, dx, dy] = this.transform;
    return [round(dx + s * x), round(dy + s * y), round(dx + s * (x + w)), round(dy + s * (y + h))];
  }

  // Paths
  beginPath() { this.path = []; }
  rect(x, y, w, h) { this.path.push([...this.sides(x, y, w, h), 0]); }
  roundRect(x, y, w, h, r = 0) { this.path.push([...this.sides(x, y, w, h), round(this.transform[0] * (r[0] ?? r))]); }
  moveTo(x, y) { const [l, t] = this.sides(x, y, 0, 0); this.path.push(`M${l} ${t}`); }
  lineTo(x, y) { const [l, t] = this.sides(x, y, 0, 0); this.path.push(`L${l} ${t}`); }
  closePath() { this.path.push("Z"); }
  // The path as [name, attributes] of elements.
  shapes() {
    const lines = this.path.filter((part) => typeof part === "string"), rects = this.path.filter((part) => typeof part !== "string");
    const drawn = rects.map(([l, t, r, b, rx]) => ["rect", { ...box(l, t, r, b), rx: rx || null }]);
    return lines.length ? [...drawn, ["path", { d: lines.join("") }]] : drawn;
  }
  fill() { this.add(...this.shapes().map(([name, attributes]) => tag(name, { ...attributes, ...this.filled() }))); }
  stroke() { this.add(...this.shapes().map(([name, attributes]) => tag(name, { ...attributes, ...this.stroked() }))); }
  clip() {
    const id = `c${this.defs.length}`;
    this.add(`<g clip-path="url(#${id})">`);
    this.defs.push(tag("clipPath", { id }, this.shapes().map(([name, attributes]) => tag(name, attributes)).join("")));
    this.open++;
  }

  filled() {
    return { fill: hex(this.fillStyle), "fill-opacity": opacity(this.globalAlpha) };
  }
  stroked() {
    const s = this.transform[0], dash = this.dash.map((v) => round(s * v)).join(" ");
    return { fill: "none", stroke: hex(this.strokeStyle), "stroke-width": round(s * this.lineWidth), "stroke-dasharray": dash || null,
      "stroke-opacity": opacity(this.globalAlpha) };
  }

  strokeRect(x, y, w, h) { this.add(tag("rect", { ...box(...this.sides(x, y, w, h)), ...this.stroked() })); }

  fillRect(x, y, w, h) {
    const [l, t, r, b] = this.sides(x, y, w, h), { row } = this;
    if (r <= l || b <= t || this.globalAlpha === 0) return;
    // Rectangles may be reordered only if none overlaps another: each must be right of or below all earlier ones.
    if (t === row.top && l >= row.right && b <= row.bottom) row.right = r;
    else {
      if (t < row.bottom) this.flush();
      this.row = { top: t, right: r, bottom: b };
    }
    const filled = this.filled(), key = Object.values(filled).join();
    if (!this.fills.has(key)) this.fills.set(key, { filled, rects: [] });
    const same = this.fills.get(key).rects, last = same.at(-1);
    if (last && last[2] === l && last[1] === t && last[3] === b) last[2] = r;
    else same.push([l, t, r, b]);
  }

  fillText(text, x, y) {
    const [, weight = "400", px = "10", family = "sans-serif"] = this.font.match(/^(?:(\w+) )?([\d.]+)px (.+)$/) || [];
    const [s, dx, dy] = this.transform, size = s * px;
    this.family ||= family;
    this.add(tag("text", {
      x: round(dx + s * x), y: round(dy + s * y + size * (BASELINE_SHIFT[this.textBaseline] || 0)), "font-size": round(size),
      "font-weight": weight === "400" || weight === "normal" ? null : weight, "font-family": family === this.family ? null : family,
      "text-anchor": ANCHORS[this.textAlign], ...this.filled(),
    }, escaped(text)));
  }

  reset() {
    this.fills = new Map();
    this.row = { top: -Infinity, right: -Infinity, bottom: -Infinity };
  }

  flush() {
    for (const { filled, rects } of this.fills.values())
      this.out.push(rects.length === 1
        ? tag("rect", { ...box(...rects[0]), ...filled })
        : tag("path", { d: rects.map(([l, t, r, b]) => `M${l} ${t}H${r}V${b}H${l}Z`).join(""), ...filled }));
    this.reset();
  }

  add(...elements) {
    this.flush();
    this.out.push(...elements);
  }

  // Returns the whole SVG file.
  text(width, height, title, description) {
    this.flush();
    const size = { width, height, viewBox: `0 0 ${width} ${height}` };
    const inside = [tag("title", {}, escaped(title)), tag("desc", {}, escaped(description)), ...this.out, "</g>".repeat(this.open)];
    if (this.defs.length) inside.splice(2, 0, tag("defs", {}, this.defs.join("")));
    const svg = { xmlns: "http://www.w3.org/2000/svg", role: "img", ...size, "font-family": this.family || "sans-serif" };
    return `<?xml version="1.0" encoding="UTF-8"?>\n${tag("svg", svg, inside.filter(Boolean).join("\n"))}\n`;
  }
}
