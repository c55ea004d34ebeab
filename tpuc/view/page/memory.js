"use strict";
/* HBM and VMEM over time, and the buffers that are there when it is fullest. Lives of buffers are positions in the program's
   schedule; a position lies where the call after it first starts. What lies between two calls is one moment: its fullest. */
T.views.memory = { name: "Memory", draw: () => {
  const m = T.main.memory, spaces = ["HBM", "VMEM"].filter((s) => m.buffers.some((b) => b.space === s));
  return h("div", {}, spaces.map((s) => T.memoryPanel(m, s)), spaces.length ? "" : h("p", { class: "hint" }, "The program has no buffers."));
} };
T.bufferKinds = { parameter: "--c-mxu", constant: "--c-ici", output: "--c-vector", temp: "--c-dma_in" };
/* Moments: {x in cycles, position, bytes by kind, total}, in order. */
T.moments = (m, all, kinds, last) => {
  const positions = [...new Set([0, ...m.steps.map((s) => s[0]), ...all.flatMap((b) => [b.live[0], b.live[1] + 1])])].filter((x) => x >= 0 && x <= last).sort((a, b) => a - b);
  const found = []; let next = 0, x = 0;
  for (const position of positions) {
    while (next < m.steps.length && m.steps[next][0] < position) next++;
    x = Math.max(x, next < m.steps.length ? m.steps[next][2] : T.main.cycles);
    const sums = kinds.map(() => 0);
    for (const b of all) if (b.live[0] <= position && position <= b.live[1]) sums[kinds.indexOf(b.kind)] += b.size;
    const moment = { x, position, sums, total: sums.reduce((a, b) => a + b, 0) }, before = found[found.length - 1];
    if (!before || before.x < x) found.push(moment); else if (moment.total > before.total) found[found.length - 1] = moment;
  }
  const end = found[found.length - 1];
  if (end.x < T.main.cycles) found.push({ ...end, x: T.main.cycles });
  if (found[0].x > 0) found.unshift({ ...found[0], x: 0 });
  return found;
};
T.memoryPanel = (m, space) => {
  const inBytes = space === "HBM" ? T.bytes : T.binary;
  const all = m.buffers.filter((b) => b.space === space), last = Math.max(1, ...m.steps.map((s) => s[0]), ...all.map((b) => b.live[1]).filter((x) => x < 1e7));
  const kinds = Object.keys(T.bufferKinds).filter((k) => all.some((b) => b.kind === k)), moments = T.moments(m, all, kinds, last);
  const peak = moments.reduce((best, p, i) => (p.total > moments[best].total ? i : best), 0), table = h("div", {}), plot = h("div", { class: "plot", style: { overflow: "hidden" } });
  const instruction = (b) => b.name.replace(/[{ ].*/, "");
  const show = (i) => {
    const { position, total, x } = moments[i], live = all.filter((b) => b.live[0] <= position && position <= b.live[1]).sort((a, b) => b.size - a.size), near = m.steps.filter((s) => s[0] <= position).pop();
    table.replaceChildren(h("p", {}, h("b", {}, total === moments[peak].total ? "When fullest" : "Then"), `, from cycle ${T.count(x)}${near ? ", at " : ""}`, near ? T.link(near[1], { site: near[1], view: "kernels" }) : "", `: ${inBytes(total)} in ${T.count(live.length)} buffers`), T.table([
      { name: "buffer", value: (b) => b.name, show: (b) => T.link(b.name, { hlo: instruction(b), view: "memory" }) }, { name: "bytes", num: true, value: (b) => b.size, show: (b) => inBytes(b.size) }, { name: "share", num: true, value: (b) => b.size, show: (b) => T.share(b.size / Math.max(1, total)) }, { name: "kind", value: (b) => b.kind, show: (b) => [h("i", { class: "dot", style: { background: `var(${T.bufferKinds[b.kind]})` } }), b.kind] }, { name: "live", value: (b) => b.live[0], show: (b) => `${Math.max(0, b.live[0])} to ${b.live[1] >= last ? "the end" : b.live[1]}`, tip: "positions in the schedule" }, { name: "at", num: true, value: (b) => b.offset }, { name: "shape", wide: true, value: (b) => b.shape },
    ], live, { most: 15, sort: 1, on: (b) => T.state.hlo !== undefined && instruction(b) === T.state.hlo }));
  };
  const draw = () => { if (plot.isConnected) T.memoryPlot(plot, moments, kinds, show, inBytes); };
  const site = T.state.site && m.steps.find((s) => s[1] === T.state.site), start = site ? moments.reduce((best, p, i) => (p.x <= site[2] ? i : best), 0) : peak;
  T.shown(() => { draw(); show(start); });
  const room = space === "HBM" ? T.main.chip.hbm_bytes : T.main.chip.vmem_bytes;
  const taken = space === "HBM" ? m.peak_bytes : moments[peak].total, between = taken - moments[peak].total;
  const gaps = between > 0 ? h("p", { class: "soft" }, `the buffers that are there when it is fullest have ${inBytes(moments[peak].total)}, ${inBytes(between)} lie between them`) : "";
  return T.panel(`${space}: ${inBytes(taken)} of ${inBytes(room)}`, gaps, plot, h("p", { class: "soft" }, `over the cycles of the run${T.main.calls.total > m.steps.length ? "; what a loop runs lies where it ran first" : ""}; a click shows what is there then`), table);
};
T.memoryPlot = (plot, moments, kinds, show, inBytes) => {
  const stacked = kinds.map((_, j) => moments.map((p) => p.sums.slice(0, j + 1).reduce((a, b) => a + b, 0)));
  const axis = { stroke: T.css("--soft"), grid: { stroke: T.css("--line"), width: 1 }, ticks: { stroke: T.css("--line"), width: 1 } };
  const options = { width: plot.clientWidth, height: 230, scales: { x: { time: false }, y: { range: (_, low, high) => [0, 1.08 * high || 1] } }, legend: { live: true }, cursor: { drag: { x: true, y: false } },
    axes: [{ ...axis, values: (_, v) => v.map(T.count), space: 110 }, { ...axis, size: 80, incrs: inBytes === T.bytes ? undefined : Array.from({ length: 50 }, (_, i) => 2 ** i), values: (_, v) => v.map(inBytes) }],
    series: [{ label: "cycle", value: (u, v) => (v === null ? "" : T.count(v)) }, ...[...kinds].reverse().map((k) => { const colour = T.css(T.bufferKinds[k]); return { label: k, stroke: colour, fill: colour, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (u, v, si, i) => (i === null || i === undefined ? "" : inBytes(moments[i].sums[kinds.indexOf(k)])) }; })],
    hooks: { ready: [(u) => u.over.addEventListener("click", () => { if (u.cursor.idx !== null && u.cursor.idx !== undefined) show(u.cursor.idx); })] } };
  plot.replaceChildren();
  const chart = new uPlot(options, [moments.map((p) => p.x), ...stacked.reverse()], plot);
  /* A scroll bar that comes with what is drawn below, or another window, leaves other room. */
  new ResizeObserver(() => { if (plot.clientWidth && plot.clientWidth !== chart.width) chart.setSize({ width: plot.clientWidth, height: options.height }); }).observe(plot);
};
