"use strict";
/* Two documents side by side: what became faster or slower, and which cause of cycles says why. */
T.views.compare = { name: "Compare", when: () => T.mains.length > 1, draw: () => {
  const [a, b] = T.mains, ms = (m, cycles) => 1e6 * cycles / m.chip.clock_hz, ta = ms(a, a.cycles), tb = ms(b, b.cycles);
  const name = (m) => `${m.model} on ${m.target}`, us = (t) => (t >= 1000 ? (t / 1000).toFixed(3) + " ms" : t.toFixed(2) + " µs");
  const times = (tx, ty) => h("span", { class: ty > tx * 1.005 ? "up" : ty < tx * 0.995 ? "down" : "soft" }, tx && ty ? (ty >= tx ? `${(ty / tx).toFixed(2)} × as long` : `${(tx / ty).toFixed(2)} × faster`) : tx ? "gone" : "new");
  const why = (ca, cb) => {
    const deltas = T.causes.map((c) => [c, ms(b, cb[c] || 0) - ms(a, ca[c] || 0)]).sort((x, y) => Math.abs(y[1]) - Math.abs(x[1])).filter((d) => Math.abs(d[1]) > 0.005);
    return deltas.slice(0, 2).map(([c, d]) => h("span", { style: { marginRight: "10px", whiteSpace: "nowrap" }, "data-tip": T.about[c] }, h("i", { class: "dot", style: { background: T.colour(c) } }), `${c} ${d > 0 ? "+" : "−"}${us(Math.abs(d))}`));
  };
  const rows = T.matched(a, b), lines = T.linesOf(a, b);
  const totals = [["time", us(ta), us(tb), times(ta, tb)], ["cycles", T.count(a.cycles), T.count(b.cycles), ""], ["MXU utilisation", T.share(a.totals["MXU utilisation"]), T.share(b.totals["MXU utilisation"]), ""], ["HBM moved", T.bytes(a.totals["HBM bytes"]), T.bytes(b.totals["HBM bytes"]), ""], ["HBM needed", T.bytes(a.totals["HBM peak bytes"]), T.bytes(b.totals["HBM peak bytes"]), ""], ["HBM of peak", T.share(a.totals["HBM utilisation"]), T.share(b.totals["HBM utilisation"]), ""], ["kernels", a.sites.length, b.sites.length, ""], ["clock", (a.chip.clock_hz / 1e9).toFixed(2) + " GHz", (b.chip.clock_hz / 1e9).toFixed(2) + " GHz", ""]];
  const longest = Math.max(ta, tb), strip = (m, t) => h("div", { style: { width: 100 * t / longest + "%" } }, T.bar(m.causes, m.cycles, true));
  const table = (what, list) => T.table([
    { name: what, value: (r) => r.name, show: (r) => r.show },
    { name: "A", num: true, value: (r) => r.ta, show: (r) => (r.ta ? us(r.ta) : "–") }, { name: "B", num: true, value: (r) => r.tb, show: (r) => (r.tb ? us(r.tb) : "–") },
    { name: "change", num: true, value: (r) => Math.abs(r.tb - r.ta), show: (r) => h("span", { class: r.tb > r.ta ? "up" : r.tb < r.ta ? "down" : "soft" }, `${r.tb >= r.ta ? "+" : "−"}${us(Math.abs(r.tb - r.ta))}`) },
    { name: "", value: (r) => (r.ta ? r.tb / r.ta : 9e9), show: (r) => times(r.ta, r.tb) }, { name: "why", show: (r) => why(r.ca, r.cb) },
  ], list.map((r) => ({ ...r, ta: ms(a, r.ca.total), tb: ms(b, r.cb.total) })), { sort: 3, most: 60 });
  return h("div", {}, T.panel("", h("p", {}, h("b", {}, "A "), name(a)), strip(a, ta), h("p", {}, h("b", {}, "B "), name(b), " ", times(ta, tb)), strip(b, tb), T.legend(T.addUp(a.causes, b.causes)), h("p", {}, why(a.causes, b.causes))),
    T.panel("Totals", h("table", {}, h("tr", {}, ["", "A", "B", ""].map((x) => h("th", { class: x ? "num" : "" }, x))), totals.map((r) => h("tr", {}, r.map((x, i) => h("td", { class: i ? "num" : "name" }, x)))))), lines.length ? T.panel("Source lines", table("line", lines)) : "", T.panel("Kernels", table("kernel", rows)));
} };
T.addUp = (x, y) => { const found = { ...x }; for (const [k, v] of Object.entries(y)) found[k] = (found[k] || 0) + v; return found; };
T.summed = (causes) => ({ ...causes, total: Object.values(causes).reduce((x, y) => x + y, 0) });
T.linesOf = (a, b) => {
  const of = (m) => { const found = new Map(); for (const c of m.costs) { if (c.origin < 0) continue; const [op, file, line] = m.origins[c.origin], key = file && line ? `${file}:${line}` : op; found.set(key, T.addUp(found.get(key) || {}, c.causes)); } return found; };
  const la = of(a), lb = of(b);
  return [...new Set([...la.keys(), ...lb.keys()])].map((key) => ({ name: key, show: [T.link(T.shortPlace(key), { line: key }), " ", h("code", { class: "soft" }, (b.lines[key] || a.lines[key] || "").slice(0, 40))], ca: T.summed(la.get(key) || {}), cb: T.summed(lb.get(key) || {}) }));
};
/* Kernels of the two that belong together: by the operations they come from, else by name. */
T.matched = (a, b) => {
  const names = (m, s) => new Set(s.origins.map((o) => m.origins[o].join("|"))), left = b.sites.map((s) => ({ s, names: names(b, s) })), rows = [];
  const score = (na, n) => { if (!na.size || !n.size) return 0; let both = 0; for (const x of na) if (n.has(x)) both++; return both / (na.size + n.size - both); };
  const row = (x, y) => rows.push({ name: (x || y).name, show: [x ? T.link(x.name, { kernel: x.kernel, site: x.name, doc: 0 }) : "–", x && y && x.name === y.name ? "" : [" → ", y ? T.link(y.name, { kernel: y.kernel, site: y.name, doc: 1 }) : "–"]], ca: T.summed(x ? x.causes : {}), cb: T.summed(y ? y.causes : {}) });
  for (const s of [...a.sites].sort((x, y) => y.cycles - x.cycles)) {
    const na = names(a, s);
    let best = null, most = 0.3;
    for (const l of left) { const v = score(na, l.names) + (l.s.name === s.name ? 0.31 : 0); if (v > most) { most = v; best = l; } }
    if (best) left.splice(left.indexOf(best), 1);
    row(s, best && best.s);
  }
  for (const l of left) row(null, l.s);
  return rows;
};
