"use strict";
/* T: what all views share. Elements, numbers in words, colours, the address, what is selected. */
const T = { views: {}, order: [], state: {}, doc: 0 };

T.h = (tag, attributes, ...children) => {
  const made = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style" && typeof value === "object") Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(9)) if (child !== undefined && child !== null && child !== false) made.append(child);
  return made;
};
const h = T.h;

T.count = (n) => Math.round(n).toLocaleString("en-US");
T.short = (n) => n >= 1e12 ? (n / 1e12).toFixed(n < 1e14 ? 1 : 0) + " T" : n >= 1e9 ? (n / 1e9).toFixed(n < 1e10 ? 2 : n < 1e11 ? 1 : 0) + " G" : n >= 1e6 ? (n / 1e6).toFixed(n < 1e7 ? 2 : 1) + " M" : n >= 1e3 ? (n / 1e3).toFixed(n < 1e4 ? 2 : 1) + " k" : String(Math.round(n));
T.bytes = (n) => n >= 1e9 ? (n / 1e9).toFixed(2) + " GB" : n >= 1e6 ? (n / 1e6).toFixed(1) + " MB" : n >= 1e3 ? (n / 1e3).toFixed(1) + " kB" : n + " B";
/* Of memories on the chip, whose sizes are powers of two. */
T.binary = (n) => n >= 1 << 20 ? (n / 2 ** 20).toFixed(1) + " MiB" : n >= 1024 ? (n / 1024).toFixed(1) + " KiB" : n + " B";
T.share = (x) => (100 * x).toFixed(x < 0.9995 ? 1 : 0) + "\u00a0%";
T.time = (cycles) => { const s = cycles / T.main.chip.clock_hz; return s >= 1 ? s.toFixed(3) + " s" : s >= 1e-3 ? (1e3 * s).toFixed(3) + " ms" : s >= 1e-6 ? (1e6 * s).toFixed(2) + " µs" : (1e9 * s).toFixed(0) + " ns"; };

T.causes = ["mxu", "mxu_result", "mxu_weights", "vector", "scalar", "latency", "dma_in", "dma_out", "ici", "loop", "launch", "main"];
T.about = { mxu: "a pass in flight, or its unit occupied", mxu_result: "waits for results: fill and drain", mxu_weights: "weights go in, no pass in flight", vector: "vector instructions issue", scalar: "scalar and DMA instructions alone", latency: "empty bundles: a latency not hidden", dma_in: "waits for a transfer from HBM", dma_out: "waits for a transfer to HBM", ici: "waits for another chip", loop: "overhead of iterations", launch: "overhead of the call", main: "between kernels" };
T.colour = (cause) => `var(--c-${T.causes.includes(cause) ? cause : "main"})`;
T.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
T.worst = (causes) => Object.entries(causes).sort((a, b) => b[1] - a[1])[0] || ["none", 0];

T.bar = (causes, total, tall) => h("div", { class: tall ? "bar tall" : "bar" }, T.causes.filter((c) => causes[c] > 0).map((c) =>
  h("i", { style: { width: 100 * causes[c] / Math.max(total, 1) + "%", background: T.colour(c) }, "data-tip": `${c}: ${T.count(causes[c])} cycles, ${T.share(causes[c] / Math.max(total, 1))}\n${T.about[c]}` })));
T.legend = (causes, total) => h("div", { class: "legend" }, T.causes.filter((c) => causes[c] > 0.002 * (total || 1)).sort((a, b) => causes[b] - causes[a]).map((c) =>
  h("span", { "data-tip": T.about[c] }, h("i", { class: "dot", style: { background: T.colour(c) } }), total ? `${c} ${T.share(causes[c] / total)}` : c)));

/* What needs an element's size waits until the view is in the document; frames do not come to a tab behind others. */
T.later = [];
T.shown = (then) => T.later.push(then);
/* The address: `#view=kernels&kernel=fusion.2&bundle=41`. Without a view the first key says it. */
T.of = { kernel: "kernel", hlo: "graph", pass: "passes", line: "costs", op: "costs", site: "kernels" };
T.read = () => {
  const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  state.view = state.view || T.of[Object.keys(state)[0]] || "overview";
  return state;
};
T.address = (given) => { const state = T.doc && given.doc === undefined ? { ...given, doc: T.doc } : { ...given }; if (!+state.doc) delete state.doc; return T.asHash(state); };
T.asHash = (state) => "#" + new URLSearchParams(Object.entries(state).filter(([, v]) => v !== undefined && v !== null && v !== "")).toString();
T.link = (text, state, more) => h("a", { href: T.address(state), ...more }, text);
T.go = (state, quietly) => { const address = T.address(state); if (quietly) { history.replaceState(null, "", address); T.state = T.read(); T.complete(); T.inspect(); } else location.hash = address; };

T.table = (columns, rows, { pick, on, sort, most = 400, key = "" } = {}) => {
  /* columns: {name, value(row), show(row), num, wide, tip}; rows that many are cut, with a way to see all. */
  let by = sort === undefined ? -1 : sort, down = true, all = false;
  const holder = h("div", { style: { overflow: "auto" } });
  const draw = () => {
    const order = by < 0 ? rows : [...rows].sort((a, b) => { const x = columns[by].value(a), y = columns[by].value(b); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
    const shown = all ? order : order.slice(0, most);
    const head = h("tr", {}, columns.map((c, i) => h("th", { class: `${c.num ? "num " : ""}${c.value ? "sort" : ""}`, "data-tip": c.tip, onclick: c.value && (() => { down = by === i ? !down : !!c.num; by = i; draw(); }) }, c.name, by === i ? h("span", { class: "arrow" }, down ? " ▼" : " ▲") : "")));
    const body = shown.map((r) => h("tr", { class: `${pick ? "pick" : ""} ${on && on(r) ? "on" : ""}`, onclick: pick && ((e) => { if (!e.target.closest("a")) pick(r); }) }, columns.map((c) => h("td", { class: c.num ? "num" : c.wide ? "wide" : c.name === columns[0].name ? "name" : "", title: c.wide ? String(c.value ? c.value(r) : "") : undefined }, c.show ? c.show(r) : c.num ? T.count(c.value(r)) : c.value(r)))));
    holder.replaceChildren(h("table", {}, h("thead", {}, head), h("tbody", {}, body)), shown.length < rows.length ? h("p", {}, h("button", { onclick: () => { all = true; draw(); } }, `show all ${T.count(rows.length)}`)) : "");
  };
  draw();
  return holder;
};

T.facts = (pairs) => h("dl", { class: "facts" }, pairs.filter((p) => p && p[1] !== undefined && p[1] !== "").map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]));
T.panel = (title, ...inside) => h("section", { class: "panel" }, title ? h("h2", {}, title) : "", inside);

document.addEventListener("mousemove", (e) => {
  const tip = document.getElementById("tip"), at = e.target.closest && e.target.closest("[data-tip]");
  tip.hidden = !at;
  if (!at) return;
  tip.textContent = at.dataset.tip;
  const left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8), top = e.clientY + 18;
  tip.style.left = left + "px";
  tip.style.top = (top + tip.offsetHeight > innerHeight ? e.clientY - tip.offsetHeight - 10 : top) + "px";
});
