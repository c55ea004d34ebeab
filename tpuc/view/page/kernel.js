"use strict";
/* One kernel: grid and windows, VMEM map, bundles as slots over cycles, LLO, plan, transfers. */
T.views.kernel = { name: "Code", full: true, draw: async () => {
  const state = T.state, name = state.kernel || (state.site && T.sites.get(state.site) || {}).kernel || ([...T.main.sites].sort((a, b) => b.cycles - a.cycles)[0] || {}).kernel || T.main.kernels[0];
  const k = name && await T.part("kernel." + name);
  if (!k) return h("p", { class: "hint" }, name ? `There is no kernel ${name}.` : "The program calls no kernel.");
  const sites = T.sitesOfKernel.get(name) || [], tab = state.tab || "bundles";
  const tabs = { bundles: "Bundles", llo: "LLO", plan: "Plan", vmem: "VMEM", dma: "Transfers" };
  const inside = tab === "llo" ? T.textList(k.llo.split("\n"), { tall: "100%" }) : tab === "plan" ? T.textList((k.plan || "no plan: a kernel of an emitter of its own").split("\n"), { tall: "100%" }) : tab === "dma" ? T.textList(k.descriptors.length ? k.descriptors : ["no transfers"], { tall: "100%" }) : tab === "vmem" ? h("div", { style: { overflow: "auto" } }, T.vmemMap(k)) : T.bundles(k);
  const all = T.main.kernels, at = all.indexOf(name);
  return h("section", { style: { display: "flex", flexDirection: "column", height: "100%" } },
    h("div", { class: "row", style: { marginBottom: "8px" } }, h("select", { "aria-label": "kernel", onchange: (e) => T.go({ kernel: e.target.value, tab: state.tab }) }, all.map((n) => h("option", { value: n, selected: n === name }, n))), h("button", { title: "previous kernel", onclick: () => T.go({ kernel: all[(at + all.length - 1) % all.length], tab: state.tab }) }, "←"), h("button", { title: "next kernel", onclick: () => T.go({ kernel: all[(at + 1) % all.length], tab: state.tab }) }, "→"),
      h("span", {}, k.note), h("span", { class: "soft grow" }, sites.length > 1 ? `called from ${sites.length} places` : ""), h("nav", { style: { margin: 0 } }, Object.entries(tabs).map(([key, text]) => h("a", { href: T.address({ ...state, view: undefined, kernel: name, tab: key }), "aria-current": key === tab ? "page" : undefined }, text)))),
    tab === "bundles" ? T.kernelNote(k) : "", h("div", { style: { flex: 1, minHeight: "200px", display: "flex", flexDirection: "column" } }, inside));
} };
T.kernelNote = (k) => {
  const holder = h("p", { class: "soft", style: { margin: "0 0 6px" } }), bundles = k.code.filter((r) => r[0] === "b");
  const stalls = {}; let issued = 0, empty = 0;
  for (const r of bundles) { issued += r[2]; if (r.length === 5) empty += r[2]; if (r[3]) stalls[r[4]] = (stalls[r[4]] || 0) + r[3]; }
  T.part("time." + k.name).then((t) => {
    const most = Object.entries(stalls).sort((a, b) => b[1] - a[1]).map(([c, n]) => `${c} ${T.count(n)}`).join(", ");
    holder.textContent = `${T.count(bundles.length)} bundles issue ${T.count(issued)} times (${T.count(empty)} of them empty)${most ? `, stalled for ${most} cycles` : ", never stalled"}. ${t.is_whole ? (t.is_same ? "As in the run, cycle by cycle." : "Followed with values off: control flow that depends on data may differ from the run's.") : `Followed for ${T.count(t.cycles)} cycles of a call.`}`;
  });
  return holder;
};

T.vmemMap = (k) => {
  const rows = k.vmem_rows, w = 900, sorted = [...k.windows].sort((a, b) => a.row - b.row), height = 22 * sorted.length + 60;
  const svg = h("svg:svg", { viewBox: `0 0 ${w} ${height}`, width: "100%", style: "max-width:1100px" }), X = (r) => 10 + (w - 20) * r / rows;
  svg.append(h("svg:rect", { x: 10, y: 8, width: w - 20, height: 22, rx: 4, fill: "var(--hover)" }));
  sorted.forEach((win, i) => {
    const colour = win.is_kept ? "var(--c-ici)" : win.name.startsWith("in.") ? "var(--c-dma_in)" : win.name.startsWith("out.") ? "var(--c-dma_out)" : "var(--c-vector)", tip = `${win.name}: rows ${T.count(win.row)} to ${T.count(win.row + win.rows - 1)}, ${T.binary(512 * win.rows)}${win.is_kept ? ", kept between kernels" : ""}`;
    svg.append(h("svg:rect", { x: X(win.row), y: 8, width: Math.max(1, X(win.row + win.rows) - X(win.row)), height: 22, fill: colour, "fill-opacity": 0.85, stroke: "var(--panel)", "data-tip": tip }));
    svg.append(h("svg:rect", { x: X(win.row), y: 40 + 22 * i, width: Math.max(1.5, X(win.row + win.rows) - X(win.row)), height: 16, rx: 2, fill: colour, "fill-opacity": 0.6, "data-tip": tip }));
    const right = X(win.row + win.rows) < w - 330;
    svg.append(h("svg:text", { x: right ? X(win.row + win.rows) + 6 : X(win.row) - 6, y: 52 + 22 * i, "text-anchor": right ? "start" : "end" }, `${win.name}  ${T.binary(512 * win.rows)}`));
  });
  const used = sorted.reduce((n, x) => n + x.rows, 0) + k.spill_rows;
  return h("div", { class: "panel" }, h("h2", {}, `${T.binary(512 * used)} of ${T.binary(512 * rows)} of VMEM`), svg, k.spill_rows ? h("p", { class: "soft" }, `and ${T.binary(512 * k.spill_rows)} for spilled registers`) : "");
};

/* Cycles of loops and branches, and the innermost one that has half of all: where to look first. */
T.blocks = (code) => {
  const cycles = new Map(), open = []; let total = 0, dearest = 0;
  code.forEach((row, i) => {
    if (row[0] === "open") { open.push(i); cycles.set(i, 0); } else if (row[0] === "close") open.pop();
    else if (row[2] >= 0) { total += row[2] + row[3]; for (const at of open) cycles.set(at, cycles.get(at) + row[2] + row[3]); }
  });
  for (const [at, took] of cycles) if (2 * took >= total && total) dearest = at;
  return { cycles, total, dearest };
};
T.bundles = (k) => {
  const used = k.slots.map(() => 0);
  for (const row of k.code) if (row[0] === "b") for (let i = 5; i < row.length; i++) used[row[i][0]] = Math.max(used[row[i][0]], row.slice(5).filter((op) => op[0] === row[i][0]).length);
  const columns = k.slots.map((s, i) => i).filter((i) => used[i]), times = k.code.some((r) => r[0] === "b" && r[2] >= 0);
  const least = { scalar: 150, misc: 130 }, width = (c) => {
    /* As wide as nine of ten cells need, in letters of 7 pixels. */
    const lengths = [];
    for (const row of k.code) if (row[0] === "b") { let n = -3; for (let i = 5; i < row.length; i++) if (row[i][0] === c) n += k.texts[row[i][1]].length + 3; if (n > 0) lengths.push(n); }
    lengths.sort((a, b) => a - b);
    return Math.min(360, Math.max(least[k.slots[c]] || 60, 14 + 7 * (lengths[Math.floor(0.9 * lengths.length)] || 0)));
  };
  const busy = (c) => k.code.reduce((n, row) => n + (row[0] === "b" && row.slice(5).some((op) => op[0] === c) ? 1 : 0), 0);
  const weight = new Map(columns.map((c) => [c, busy(c)]));
  /* What computes stands first: the rest may lie beyond the right edge of a small window. */
  const rank = (c) => { const at = ["mxu", "valu", "eup"].indexOf(k.slots[c]); return at < 0 ? 9 : at; };
  columns.sort((a, b) => rank(a) - rank(b) || weight.get(b) - weight.get(a));
  const grid = `64px ${times ? "84px 150px " : ""}${columns.map((c) => width(c) + "px").join(" ")}`;
  const numbers = []; let n = 0;
  for (const row of k.code) numbers.push(row[0] === "b" ? n++ : -1);
  const head = h("div", { class: "head", style: { gridTemplateColumns: grid, width: "max-content", minWidth: "100%" } }, h("span", {}, "bundle"), times ? [h("span", {}, "cycles"), h("span", {}, "stalls")] : "", columns.map((c) => h("span", {}, k.slots[c])));
  /* What is selected, an instruction or a source line, stands out from the rest. */
  const wanted = T.state.bundle === undefined ? -1 : +T.state.bundle, source = T.state.hlo, place = T.state.line;
  const isMine = source ? (s) => s === source : place ? (s) => (k.origins[s] || []).some((o) => T.place(o) === place) : null;
  const marked = isMine && k.sources.some(isMine) ? k.sources.map(isMine) : null;
  const most = times ? Math.max(1, ...k.code.map((r) => (r[0] === "b" ? r[2] + r[3] : 0))) : 1;
  const blocks = T.blocks(k.code);
  const line = (i) => {
    const row = k.code[i], took = blocks.cycles.get(i);
    if (row[0] !== "b") return h("div", { class: "part", style: { paddingLeft: 8 + 16 * row[1] + "px" } }, row[0] === "open" ? [`${row[2]} {`, took ? h("span", { class: "took" }, `${T.count(took)} cycles, ${T.share(took / blocks.total)}`) : ""] : "}");
    const ops = row.slice(5), on = numbers[i] === +T.state.bundle;
    const cell = (c) => { const mine = ops.filter((op) => op[0] === c); return h("span", { title: mine.map((op) => k.texts[op[1]] + (k.sources[op[2]] ? "   from " + k.sources[op[2]] : "")).join("\n") }, mine.map((op, j) => [j ? h("span", { class: "soft" }, " ; ") : "", h("span", { class: marked && !marked[op[2]] ? "dim" : "" }, k.texts[op[1]])])); };
    const timing = times ? [h("span", { class: "right", style: { background: `linear-gradient(to left, color-mix(in srgb, var(--c-vector) 35%, transparent) ${100 * (row[2] + row[3]) / most}%, transparent 0)` } }, row[2] < 0 ? "" : T.count(row[2] + row[3])), h("span", {}, row[3] ? [h("i", { class: "dot", style: { background: T.colour(row[4]) } }), `${T.count(row[3])} ${row[4]}`] : "")] : "";
    return h("div", { class: `pick ${on ? "on" : ""}`, style: { gridTemplateColumns: grid, width: "max-content" }, onclick: () => { T.go({ kernel: k.name, site: T.state.site, hlo: T.state.hlo, line: T.state.line, bundle: numbers[i] }, true); list.redraw(); } }, h("span", { class: "right soft" }, numbers[i]), timing, columns.map(cell));
  };
  const list = T.list(k.code.length, 20, line, { className: "bundles", head, tall: "100%" });
  const show = wanted >= 0 ? numbers.indexOf(wanted) : marked ? k.code.findIndex((r) => r[0] === "b" && r.slice(5).some((op) => marked[op[2]])) : -1;
  if (show >= 0) list.show(show); else if (blocks.dearest > 0) list.show(blocks.dearest, 0);
  return list;
};
