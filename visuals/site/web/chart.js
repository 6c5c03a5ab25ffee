// Charts: figures drawn as SVG by Plotly, which is loaded when the first of them comes into view.

import { bytes, json } from "./load.js";

let plotly = null;

async function library(name) {
  plotly ||= (async () => {
    const script = document.createElement("script");
    script.src = URL.createObjectURL(new Blob([await bytes(name)], { type: "text/javascript" }));
    const done = new Promise((resolve, reject) => Object.assign(script, { onload: resolve, onerror: reject }));
    document.head.append(script);
    await done;
    return window.Plotly;
  })();
  plotly.catch(() => { plotly = null; });
  return plotly;
}

// The figure in the colours of a theme. Figures are recorded in those of the light one.
export function inTheme(figure, { light, dark }, isDark) {
  if (!isDark) return figure;
  const to = new Map(Object.entries(light).map(([name, colour]) => [colour.toLowerCase(), dark[name]]));
  const rgb = new Map(Object.entries(light).map(([name, colour]) => [channels(colour), channels(dark[name])]));
  const other = (text) => to.get(text.toLowerCase())
    ?? text.replace(/#[0-9a-f]{6}\b/gi, (colour) => to.get(colour.toLowerCase()) ?? colour)
      .replace(/rgba\((\d+), ?(\d+), ?(\d+)/g, (found, ...three) => {
        const colour = rgb.get(three.slice(0, 3).join());
        return colour ? `rgba(${colour}` : found;
      });
  return mapped(figure, other);
}

const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)).join();

function mapped(value, change) {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((one) => mapped(one, change));
  if (!value || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, mapped(one, change)]));
}

// Draws a figure once its place is near the window. Returns the place; `place.paint` draws it again in another theme.
export function chart(element, site) {
  const place = document.createElement("div");
  place.className = "site-chart";
  place.style.minHeight = `${element.height || 300}px`;
  const paint = async () => {
    try {
      const [{ data, layout }, found] = await Promise.all([json(element.ref), library(site.plotly)]);
      if (!place.isConnected) return;
      const figure = inTheme({ data, layout }, site.common.tokens, site.isDark());
      await found.react(place, figure.data, { ...figure.layout, autosize: true }, { displayModeBar: false, responsive: true });
    } catch (error) {
      place.textContent = error.message || "This chart cannot be drawn here.";
      place.classList.add("kt-quiet");
    }
  };
  let near = false;
  new IntersectionObserver((entries, observer) => {
    if (!entries.at(-1).isIntersecting) return;
    observer.disconnect();
    near = true;
    paint();
  }, { rootMargin: "200px" }).observe(place);
  place.paint = () => near && paint();
  return place;
}
