"use strict";
T.views.overview = { name: "Overview", draw: () => {
  const m = T.main, worst = T.worst(m.causes);
  const cards = [
    [T.time(m.cycles), "time on the chip"], [T.count(m.cycles), m.is_estimate ? "cycles, estimated" : "cycles"],
    [T.share(m.totals["MXU utilisation"]), `of MXU peak (busy ${T.share(m.totals["MXU busy"])})`],
    [T.share(m.totals["HBM utilisation"]), `of HBM peak, ${T.bytes(m.totals["HBM bytes"])} moved`],
    [T.bytes(m.totals["HBM peak bytes"]), "HBM needed"],
    ...(m.totals.joules ? [[T.joules(m.totals.joules), `energy, ${m.totals.watts.toFixed(0)} W on average${m.totals["assumed energies"].length ? " (assumed)" : ""}`]] : []), [worst[0], `takes ${T.share(worst[1] / m.cycles)}`],
  ].map(([big, small]) => h("div", { class: "card" }, h("b", {}, big), h("span", {}, small)));
  const alike = T.alike(m.sites), slowest = alike.sort((a, b) => b.cycles - a.cycles).slice(0, 12);
  const notes = [...m.remarks.slice(0, 6).map((r) => h("p", { class: "soft" }, r)), m.remarks.length > 6 ? h("p", { class: "soft" }, `${m.remarks.length - 6} more remarks: see Passes`) : ""];
  return h("div", {}, h("div", { class: "cards" }, cards),
    T.panel("Where the cycles go", T.bar(m.causes, m.cycles, true), T.legend(m.causes, m.cycles)),
    (m.advice || []).length ? T.panel("What would help", T.adviceTable(m.advice, 3)) : "",
    h("div", { class: "two" },
      h("div", {}, T.panel("Slowest kernels", T.siteTable(slowest, true), m.sites.length > slowest.length ? h("p", {}, T.link(`all ${m.sites.length} kernels`, { view: "kernels" }), h("span", { class: "soft" }, alike.length < m.sites.length ? "; those of the same code are one row here" : "")) : ""), T.panel("Dearest lines", T.lineTable(10))),
      h("div", {}, T.panel("Roofline", T.roofline(m.sites), h("p", { class: "soft" }, "Each circle is a kernel, as large as its share of the cycles, below its roof by as much as it loses; its colour is what binds it.", T.unplotted(m.sites))), m.remarks.length ? T.panel("Remarks of the compiler", notes) : "")));
} };
T.joules = (x) => x >= 1 ? `${x.toPrecision(4)} J` : `${(1e3 * x).toPrecision(4)} mJ`;
T.computes = (s) => (s.flops || s.element_ops) && s.cycles;
T.unplotted = (sites) => {
  const names = [...new Set(sites.filter((s) => T.computes(s) && !s.least_bytes).map((s) => s.name))];
  return names.length ? ` Not there, as nothing that they need lies in HBM: ${names.slice(0, 4).join(", ")}${names.length > 4 ? `, ${names.length - 4} more` : ""}.` : "";
};
/* Advice: what it saves, where, why, what to do. */
T.adviceTable = (advice, most) => T.table([
  { name: "saves", tip: "each alone, and about so much", num: true, value: (a) => a.saved, show: (a) => [h("b", {}, T.share(a.saved / T.main.cycles)), h("br"), h("span", { class: "soft" }, T.short(a.saved))] },
  { name: "where", value: (a) => a.lines[0] || a.sites[0], show: (a) => [(a.lines.length ? a.lines : a.sites.slice(0, 3)).map((n) => h("div", {}, a.lines.length ? T.link(T.shortPlace(n), { line: n }, { title: n }) : T.link(n, { kernel: (T.sites.get(n) || {}).kernel, site: n }))), !a.lines.length && a.sites.length > 3 ? h("span", { class: "soft" }, `${a.sites.length - 3} more`) : ""] },
  { name: "why, and what to do", show: (a) => [h("div", {}, a.why), h("div", { class: "soft" }, "→ " + a.remedy)] },
], advice, { most });
T.views.kernels = { name: "Kernels", draw: () => T.panel(`${T.main.sites.length} kernels`, T.siteTable(T.main.sites, false)) };

/* Call sites of the same code, as the layers of a model have them, added up. */
T.alike = (sites) => {
  const found = new Map();
  for (const s of sites) {
    const to = found.get(s.kernel);
    if (!to) { found.set(s.kernel, { ...s, sites: 1, busy: s.mxu * s.cycles }); continue; }
    to.sites++; to.busy += s.mxu * s.cycles; to.causes = T.addUp(to.causes, s.causes);
    for (const key of ["calls", "cycles", "roofline_cycles"]) to[key] += s[key];
    to.mxu = to.cycles ? to.busy / to.cycles : 0;
  }
  return [...found.values()];
};
T.siteNote = (s) => s.note.replace(s.kernel + " ", "") + (s.kernel !== s.name && !(s.sites > 1) ? ` · code of ${s.kernel}` : "");
T.siteTable = (sites, brief) => {
  const total = T.main.cycles, columns = [
    { name: "kernel", value: (s) => s.name, show: (s) => [T.link(s.name, { kernel: s.kernel, site: s.name }), s.sites > 1 ? h("span", { class: "soft" }, ` × ${s.sites}`) : ""] },
    brief ? null : { name: "calls", num: true, value: (s) => s.calls },
    { name: "cycles", num: true, value: (s) => s.cycles },
    { name: "share", num: true, value: (s) => s.cycles, show: (s) => T.share(s.cycles / total) },
    { name: "where they go", value: (s) => T.worst(s.causes)[0], show: (s) => T.bar(s.causes, s.cycles) },
    { name: "MXU", num: true, value: (s) => s.mxu, show: (s) => T.share(s.mxu), tip: "of the peak, by the model's own multiply-adds" },
    { name: "of roof", num: true, value: (s) => s.roofline_cycles / s.cycles, show: (s) => T.share(s.roofline_cycles / s.cycles), tip: "time at its roof over its time" },
    brief ? null : { name: "HBM", num: true, value: (s) => s.hbm_bytes, show: (s) => T.bytes(s.hbm_bytes) },
    brief ? null : { name: "least", num: true, value: (s) => s.least_bytes, show: (s) => T.bytes(s.least_bytes), tip: "bytes that it must move" },
    brief ? null : { name: "lost", num: true, value: (s) => s.cycles - s.roofline_cycles, show: (s) => T.count(Math.max(0, s.cycles - s.roofline_cycles)), tip: "cycles beyond its roof" },
    { name: "what", wide: true, value: T.siteNote },
  ].filter((c) => c);
  return T.table(columns, sites, { sort: columns.findIndex((c) => c.name === "cycles"), pick: (s) => T.go({ ...T.state, site: s.name, kernel: s.kernel }), on: (s) => s.name === T.state.site });
};

T.roofline = (sites) => {
  const chip = T.main.chip, w = 560, height = 300, l = 58, b = 34, t = 12, r = 12;
  const dots = sites.filter((s) => s.least_bytes && T.computes(s)).map((s) => {
    const work = Math.max(s.flops, 1) >= s.element_ops ? s.flops : s.element_ops;
    return { s, x: work / s.least_bytes, y: work / (s.cycles / chip.clock_hz), mxu: s.flops >= s.element_ops };
  });
  if (!dots.length) return h("p", { class: "soft" }, "No kernel computes.");
  const ridge = chip.peak_flops / chip.hbm_bytes_per_second;
  const x0 = Math.log10(Math.min(0.05, ...dots.map((d) => d.x))), x1 = Math.log10(Math.max(ridge * 6, ...dots.map((d) => 1.8 * d.x)));
  const y1 = Math.log10(chip.peak_flops * 5), y0 = Math.min(y1 - 4, Math.log10(Math.min(...dots.map((d) => d.y))) - 0.3);
  const X = (v) => l + (w - l - r) * (Math.log10(v) - x0) / (x1 - x0), Y = (v) => t + (height - t - b) * (y1 - Math.log10(v)) / (y1 - y0);
  const svg = h("svg:svg", { viewBox: `0 0 ${w} ${height}`, width: "100%", role: "img", "aria-label": "roofline plot" });
  for (let e = Math.ceil(x0); e <= x1; e++) svg.append(h("svg:line", { class: "axis", x1: X(10 ** e), x2: X(10 ** e), y1: t, y2: height - b }), h("svg:text", { class: "faint", x: X(10 ** e), y: height - b + 14, "text-anchor": "middle" }, e >= 0 && e < 4 ? String(10 ** e) : `1e${e}`));
  for (let e = Math.ceil(y0); e <= y1; e++) svg.append(h("svg:line", { class: "axis", x1: l, x2: w - r, y1: Y(10 ** e), y2: Y(10 ** e) }), h("svg:text", { class: "faint", x: l - 6, y: Y(10 ** e) + 4, "text-anchor": "end" }, T.short(10 ** e)));
  svg.append(h("svg:text", { class: "faint", x: w - r, y: height - 4, "text-anchor": "end" }, "operations per byte that must move"), h("svg:text", { class: "faint", x: l + 4, y: t + 10 }, "operations per second"));
  const roof = (peak, label, dash) => {
    const knee = peak / chip.hbm_bytes_per_second, from = Math.max(10 ** x0, 10 ** y0 / chip.hbm_bytes_per_second);
    const points = [[from, from * chip.hbm_bytes_per_second], [knee, peak], [10 ** x1, peak]].map(([x, y]) => `${X(x)},${Y(y)}`);
    svg.append(h("svg:polyline", { points: points.join(" "), fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, "stroke-dasharray": dash }));
    return h("svg:text", { class: "halo", x: w - r - 4, y: Y(peak) - 14, "text-anchor": "end" }, label);
  };
  const labels = [roof(chip.peak_flops, `matrix units ${T.short(chip.peak_flops)}FLOP/s`), roof(chip.vector_ops_per_second, `vector unit ${T.short(chip.vector_ops_per_second)}op/s`, "5 3")];
  const most = Math.max(...dots.map((d) => d.s.cycles));
  for (const d of dots.sort((a, b2) => b2.s.cycles - a.s.cycles)) svg.append(h("svg:circle", { cx: X(d.x), cy: Y(Math.max(d.y, 10 ** y0)), r: 3 + 13 * Math.sqrt(d.s.cycles / most), fill: T.colour(T.worst(d.s.causes)[0]), "fill-opacity": 0.65, stroke: T.state.site === d.s.name ? "var(--ink)" : "var(--panel)", "stroke-width": T.state.site === d.s.name ? 3 : 1, style: "cursor:pointer", "data-tip": `${d.s.name}\n${T.count(d.s.cycles)} cycles, ${T.share(d.s.roofline_cycles / d.s.cycles)} of its roof (${d.s.roofline})\nbound by ${T.worst(d.s.causes)[0]}`, onclick: () => T.go({ ...T.state, site: d.s.name, kernel: d.s.kernel }) }));
  svg.append(...labels);
  return svg;
};

T.lineTable = (count, most) => {
  const rows = [...T.lineCosts.values()].sort((a, b) => b.cycles - a.cycles), total = T.main.cycles;
  if (rows.length === 1 && rows[0].key === "(not known)") return h("p", { class: "soft" }, "The model does not say where its operations come from (HLO metadata, StableHLO loc). From JAX: lowered.as_text(debug_info=True).");
  const own = T.main.has_own_lines ? h("p", { class: "soft" }, "The model does not say where its operations come from: these are lines of its own text. From JAX: lowered.as_text(debug_info=True).") : "";
  return [own, T.table([
    { name: "line", value: (r) => r.key, show: (r) => [T.link(T.shortPlace(r.key), { line: r.key }, { title: r.key }), " ", h("code", { class: "soft" }, (T.main.lines[r.key] || "").slice(0, 60))] },
    { name: "cycles", num: true, value: (r) => r.cycles }, { name: "share", num: true, value: (r) => r.cycles, show: (r) => T.share(r.cycles / total) },
    { name: "where they go", show: (r) => T.bar(r.causes, r.cycles) },
  ], rows.slice(0, count), { sort: 1, most: most && Math.max(most, 1 + rows.findIndex((r) => r.key === T.state.line)), pick: (r) => T.go({ ...T.state, line: r.key }), on: (r) => r.key === T.state.line })];
};
