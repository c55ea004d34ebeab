"use strict";
/* HBM and VMEM over the program's schedule, and the buffers that are there when it is fullest. */
T.views.memory = { name: "Memory", draw: () => {
  const m = T.main.memory, spaces = ["HBM", "VMEM"].filter((s) => m.buffers.some((b) => b.space === s));
  return h("div", {}, spaces.map((s) => T.memoryPanel(m, s)), spaces.length ? "" : h("p", { class: "hint" }, "The program has no buffers."));
} };
T.memoryPanel = (m, space) => {
  const all = m.buffers.filter((b) => b.space === space), last = Math.max(1, ...m.steps.map((s) => s[0]), ...all.map((b) => Math.min(b.live[1], 1e7)).filter((x) => x < 1e7));
  const points = [...new Set([0, ...all.flatMap((b) => [b.live[0], b.live[1] + 1]).filter((x) => x >= 0 && x <= last + 1)])].sort((a, b) => a - b);
  const kinds = ["parameter", "constant", "output", "temp"].filter((k) => all.some((b) => b.kind === k));
  const at = (x) => all.filter((b) => b.live[0] <= x && x <= b.live[1]);
  const sums = points.map((x) => { const live = at(x); return kinds.map((k) => live.reduce((n, b) => n + (b.kind === k ? b.size : 0), 0)); });
  const total = sums.map((row) => row.reduce((a, b) => a + b, 0)), peak = total.indexOf(Math.max(...total));
  const table = h("div", {}), plot = h("div", {});
  const show = (i) => {
    const x = points[i], live = at(x).sort((a, b) => b.size - a.size), near = m.steps.filter((s) => s[0] <= x).pop();
    table.replaceChildren(h("h3", {}, `${i === peak ? "when fullest, " : ""}at position ${x}${near ? ", " : ""}`, near ? T.link(near[1], { site: near[1], view: "kernels" }) : "", ` · ${T.bytes(total[i])} in ${live.length} buffers`), T.table([
      { name: "buffer", value: (b) => b.name, show: (b) => T.link(b.name, { hlo: b.name.replace(/[{ ].*/, ""), view: "memory" }) }, { name: "bytes", num: true, value: (b) => b.size, show: (b) => T.bytes(b.size) }, { name: "share", num: true, value: (b) => b.size, show: (b) => T.share(b.size / Math.max(1, total[i])) }, { name: "kind", value: (b) => b.kind }, { name: "live", value: (b) => b.live[0], show: (b) => `${Math.max(0, b.live[0])} to ${b.live[1] > last ? "the end" : b.live[1]}` }, { name: "at", num: true, value: (b) => b.offset }, { name: "shape", wide: true, value: (b) => b.shape },
    ], live, { most: 15 }));
  };
  const draw = () => {
    if (!plot.isConnected) return;
    const colours = { parameter: "--c-mxu", constant: "--c-ici", output: "--c-vector", temp: "--c-dma_in" }, stacked = [];
    kinds.forEach((k, j) => stacked.push(sums.map((row) => row.slice(0, j + 1).reduce((a, b) => a + b, 0))));
    const options = { width: plot.clientWidth, height: 210, scales: { x: { time: false } }, legend: { live: true }, cursor: { drag: { x: true, y: false } },
      axes: [{ stroke: T.css("--soft"), grid: { stroke: T.css("--line") }, values: (_, v) => v.map((x) => String(x)) }, { stroke: T.css("--soft"), grid: { stroke: T.css("--line") }, size: 76, values: (_, v) => v.map(T.bytes) }],
      series: [{ label: "position" }, ...[...kinds].reverse().map((k) => ({ label: k, stroke: T.css(colours[k]), fill: T.css(colours[k]) + "aa", paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (u, v, si, i) => i === null ? "" : T.bytes(sums[i][kinds.indexOf(k)]) }))],
      hooks: { ready: [(u) => u.over.addEventListener("click", () => { if (u.cursor.idx !== null && u.cursor.idx !== undefined) show(u.cursor.idx); })] } };
    plot.replaceChildren();
    new uPlot(options, [points, ...[...stacked].reverse()], plot);
  };
  const site = T.state.site && m.steps.find((s) => s[1] === T.state.site), start = site ? points.reduce((best, x, i) => (x <= site[0] ? i : best), 0) : peak;
  requestAnimationFrame(() => { draw(); show(start); });
  const room = space === "HBM" ? T.main.chip.hbm_bytes : T.main.chip.vmem_bytes;
  return T.panel(`${space}: ${T.bytes(total[peak] || 0)} of ${T.bytes(room)} when fullest`, plot, h("p", { class: "soft" }, "over the positions of the program's schedule; a click shows what is there then"), table);
};
