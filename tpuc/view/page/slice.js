"use strict";
/* The chips of a slice: how long each took, what each link carried, the program's collectives. */
T.views.slice = { name: "Slice", when: () => !!T.main.slice, draw: () => {
  const s = T.main.slice, [nx, ny, nz] = s.size, cell = Math.max(70, Math.min(150, 1200 / Math.max(nx * nz, 1))), plane = nx * cell + 40, w = plane * nz, height = ny * cell + 30;
  const ran = s.core_cycles.filter((n) => n), most = Math.max(0, ...ran), least = Math.min(...ran), ofPeak = (n) => T.share(s.room_bytes ? n / s.room_bytes : 0), carried = new Map(s.links.map(([chip, axis, way, n]) => [`${chip}/${axis}/${way}`, n])), busiest = Math.max(1, ...carried.values());
  const at = (c) => { const [x, y, z] = s.chips[c]; return [z * plane + 20 + x * cell + cell / 2, 15 + y * cell + cell / 2]; };
  const index = new Map(s.chips.map((c, i) => [c.join(), i])), perChip = Math.max(1, s.core_cycles.length / s.chips.length);
  const svg = h("svg:svg", { viewBox: `0 0 ${w} ${height}`, width: "100%", style: `display:block;margin:0 auto;max-width:${Math.max(w, 480)}px;max-height:62vh` });
  s.chips.forEach((place, c) => [0, 1, 2].forEach((axis) => [1, -1].forEach((way) => {
    const n = carried.get(`${c}/${axis}/${way}`) || 0, to = [...place];
    to[axis] = (to[axis] + way + s.size[axis]) % s.size[axis];
    if (s.size[axis] < 2 || axis === 2) return;
    const wraps = Math.abs(to[axis] - place[axis]) > 1, [x, y] = at(c), other = index.get(to.join());
    if (wraps && !s.wraps[axis]) return;
    const [x2, y2] = wraps ? [x + (axis === 0 ? way * cell * 0.46 : 0), y + (axis === 1 ? way * cell * 0.46 : 0)] : at(other), off = 5 * way, dx = axis === 1 ? off : 0, dy = axis === 0 ? off : 0;
    svg.append(h("svg:line", { x1: x + dx, y1: y + dy, x2: x2 + dx, y2: y2 + dy, stroke: n ? "var(--c-ici)" : "var(--line)", "stroke-opacity": n ? 0.3 + 0.7 * n / busiest : 1, "stroke-width": n ? 1.5 + 5 * n / busiest : 1, "data-tip": `chip ${c} ${"xyz"[axis]}${way > 0 ? "+" : "−"}: ${T.bytes(n)}, ${ofPeak(n)} of what it could carry` }));
  })));
  s.chips.forEach((place, c) => {
    const [x, y] = at(c), cycles = Math.max(...s.core_cycles.slice(c * perChip, (c + 1) * perChip)), r = cell * 0.27;
    svg.append(h("svg:rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, rx: 7, fill: "var(--panel)", "fill-opacity": cycles ? 1 : 0.3, stroke: !cycles ? "var(--line)" : cycles === most ? "var(--c-dma_in)" : "var(--c-mxu)", "stroke-width": 2, "data-tip": `chip ${c} at (${place.join(", ")})\n${T.count(cycles)} cycles` }), h("svg:text", { x, y: y - 2, "text-anchor": "middle", "font-weight": 600, "pointer-events": "none" }, String(c)), h("svg:text", { class: "faint", x, y: y + 12, "text-anchor": "middle", "pointer-events": "none" }, cycles ? T.share(cycles / most) : "idle"));
  });
  const total = s.links.reduce((n, l) => n + l[3], 0);
  return h("div", {}, h("div", { class: "cards" }, [[s.name, ran.length < s.core_cycles.length ? `${ran.length} of ${s.core_cycles.length} devices run the program` : `${s.chips.length} chips`], [T.count(most), least === most ? "cycles, each" : `cycles, the fastest ${T.count(least)}`], [T.bytes(total), "over links"], [ofPeak(s.links.length ? busiest : 0), "of its peak on the busiest link"]].map(([a, b]) => h("div", { class: "card" }, h("b", {}, a), h("span", {}, b)))),
    T.panel("Chips and links", svg, h("p", { class: "soft" }, ran.length < s.core_cycles.length ? "The program is one of a single device: it needs partitions or replicas to use the others. " : "", "A link is as wide as what it carried one way; a chip says its time as a share of the slowest one's, whose border is orange.", s.size[2] > 1 ? " Planes stand side by side; links between them are in the table." : "")),
    h("div", { class: "two" }, T.panel("Collectives of the program", s.collectives.length ? T.table(Object.keys(s.collectives[0]).map((k) => ({ name: k.replace("_", " "), value: (r) => r[k], num: typeof s.collectives[0][k] === "number", show: (r) => (k.includes("bytes") ? T.bytes(r[k]) : String(r[k])) })), s.collectives) : h("p", { class: "soft" }, "none")),
      T.panel("Links", T.table([{ name: "link", value: (l) => `chip ${l[0]} ${"xyz"[l[1]]}${l[2] > 0 ? "+" : "−"}` }, { name: "bytes", num: true, value: (l) => l[3], show: (l) => T.bytes(l[3]) }, { name: "of peak", num: true, value: (l) => l[3], show: (l) => ofPeak(l[3]) }], s.links, { sort: 1, most: 24 }))));
} };
