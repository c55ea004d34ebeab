"use strict";
/* The HLO graph. Operation name scopes, fusions and loop bodies are boxes that open and close; what is in closed ones is one
   node. A graph too large for that is shown around what is selected. dagre says where nodes and edges lie. */
T.views.graph = { name: "Graph", full: true, draw: async () => {
  const which = T.state.graph === "input" ? "graph.input" : "graph.final";
  let g = await T.graph(which), name = which;
  if (T.state.hlo && g && !g.names.has(T.state.hlo)) { const other = which === "graph.final" ? "graph.input" : "graph.final", o = await T.graph(other); if (o && o.names.has(T.state.hlo)) { g = o; name = other; } }
  if (!g) return h("p", { class: "hint" }, "The document has no graph.");
  T.opened = T.opened || {};
  const opened = (T.opened[name] = T.opened[name] || { open: new Set(), closed: new Set() });
  if (T.state.hlo) T.openTo(g, T.state.hlo, opened);
  const shown = T.visible(g, opened), wanted = T.drawn(g, T.state.hlo) || T.state.site;
  const picked = shown.nodes.size > 160 ? T.around(shown, shown.nodes.has(wanted) ? wanted : T.dearest(shown) || T.middle(shown), 90) : shown;
  const svg = T.drawGraph(picked, opened, wanted);
  const chips = [...opened.open].map((id) => h("span", { class: "tag" }, T.shortOp(id.replace(/^[^:]*:/, "")), " ", h("a", { title: "close", onclick: () => { opened.open.delete(id); opened.closed.add(id); if (T.state.hlo && T.holders(g, T.state.hlo).includes(id)) T.go({ ...T.state, hlo: undefined }, true); T.draw(); } }, "×")));
  const count = g.computations.reduce((n, c) => n + c.instructions.length, 0);
  return h("section", { style: { display: "flex", flexDirection: "column", height: "100%" } }, h("div", { class: "row", style: { marginBottom: "8px" } }, h("nav", { style: { margin: 0 } }, ["final", "input"].map((w) => h("a", { href: T.address({ ...T.state, view: "graph", graph: w, hlo: undefined }), "aria-current": "graph." + w === name ? "page" : undefined }, w === "final" ? "what runs" : "the model"))), h("span", { class: "soft" }, picked.nodes.size < shown.nodes.size ? `${picked.nodes.size} of ${shown.nodes.size} boxes, around the selected one` : `${picked.nodes.size} boxes`, ` of ${T.count(count)} instructions`), h("div", { class: "row grow", style: { gap: "4px", maxHeight: "44px", overflow: "auto" } }, chips), chips.length ? h("button", { onclick: () => { T.opened[name] = undefined; T.draw(); } }, "reset") : ""),
    h("div", { class: "frame grow", style: { overflow: "hidden", minHeight: 0 } }, svg), h("p", { class: "soft", style: { margin: "6px 0 0" } }, "a click selects, two open or close a scope, fusion or loop; wheel zooms, drag moves. Constants and tuples are left out, and parameters where there are many."));
} };
const through = new Set(["get-tuple-element", "tuple", "bitcast"]), hidden = new Set(["constant"]);

/* All that an instruction is in: scopes, fusions, bodies of loops. What is selected is shown, so closing one of these deselects it. */
T.holders = (g, name) => {
  const found = [];
  let at = g.names.get(name);
  while (at) {
    found.push(...T.groupsOf(g.computations[at[0]].instructions[at[1]], at[0]));
    const caller = g.calledBy.get(at[0]);
    if (caller) found.push("body:" + g.computations[caller[0]].instructions[caller[1]][0]);
    at = caller;
  }
  return found;
};
T.openTo = (g, name, opened) => { for (const id of T.holders(g, name)) { opened.open.add(id); opened.closed.delete(id); } };
/* Of an instruction that is drawn as edges alone, where they come from. */
T.drawn = (g, name) => {
  let at = g && g.names.get(name), row = at && g.computations[at[0]].instructions[at[1]];
  while (row && through.has(row[1]) && row[3].length) row = g.computations[at[0]].instructions[row[3][0]];
  return row ? row[0] : name;
};
T.groupsOf = (row, ci) => { const parts = row[6].length ? T.scopes(T.opName(row[6][0])).slice(0, -1) : []; return parts.map((_, i) => `${ci}:${parts.slice(0, i + 1).join("/")}`); };

T.entryOf = (g) => g.computations.find((c) => c.role === "entry");
/* Which boxes there are, given what is open: id -> {label, ..}, and edges between them. */
T.visible = (g, opened) => {
  const nodes = new Map(), where = new Map(), key = (ci, i) => ci * 1e6 + i;
  const many = T.entryOf(g).instructions.filter((row) => row[1] === "parameter").length > 14;
  const entry = g.computations.length - 1 - [...g.computations].reverse().findIndex((c) => c.role === "entry");
  const place = (ci, callers) => {
    const c = g.computations[ci], rows = c.instructions.map((row, i) => ({ row, i, groups: T.groupsOf(row, ci) })).filter(({ row }) => !through.has(row[1]) && !hidden.has(row[1]) && !(row[1] === "parameter" && (callers || many)));
    T.autoOpen(rows, opened, callers ? 24 : 34);
    for (const { row, i, groups } of rows) {
      const shut = groups.find((id) => !opened.open.has(id));
      const body = row[5].find((b) => ["fused", "body"].includes(g.computations[b].role)), bodyId = "body:" + row[0];
      if (shut) {
        const box = nodes.get(shut) || { id: shut, label: shut.replace(/^[^:]*:/, ""), kind: "group", count: 0, cycles: 0, causes: {} };
        box.count++; T.addSite(box, row[0]); nodes.set(shut, box); where.set(key(ci, i), shut);
      } else if (body !== undefined && opened.open.has(bodyId)) {
        place(body, true);
        where.set(key(ci, i), { body, root: g.computations[body].root });
      } else {
        const box = { id: row[0], label: row[0], kind: body !== undefined ? "call" : "op", opcode: row[1], shape: row[2], body: bodyId, cycles: 0, causes: {} };
        T.addSite(box, row[0]); nodes.set(row[0], box); where.set(key(ci, i), row[0]);
      }
    }
  };
  place(entry, false);
  const edges = new Set();
  const sources = (ci, i, seen = 0) => {
    if (seen > 40) return [];
    const row = g.computations[ci].instructions[i], at = where.get(key(ci, i));
    if (typeof at === "string") return [at];
    if (at) return sources(at.body, at.root, seen + 1);
    if (row[1] === "parameter") { const caller = g.calledBy.get(ci); if (!caller) return []; const call = g.computations[caller[0]].instructions[caller[1]], number = +row[4].split(")")[0], operand = call[3][Number.isInteger(number) && call[3].length > 1 ? number : 0]; return operand === undefined ? [] : sources(caller[0], operand, seen + 1); }
    return hidden.has(row[1]) ? [] : row[3].flatMap((o) => sources(ci, o, seen + 1));
  };
  const done = new Set(), link = (ci) => {
    if (done.has(ci)) return;
    done.add(ci);
    g.computations[ci].instructions.forEach((row, i) => {
      const to = where.get(key(ci, i));
      if (to && typeof to === "object") { link(to.body); return; }
      if (typeof to === "string") for (const o of row[3]) for (const from of sources(ci, o)) if (from !== to) edges.add(from + "\n" + to);
    });
  };
  link(entry);
  return { nodes, edges: [...edges].map((e) => e.split("\n")) };
};
T.addSite = (box, name) => { const s = T.sites.get(name); if (s) { box.cycles += s.cycles; for (const [k, v] of Object.entries(s.causes)) box.causes[k] = (box.causes[k] || 0) + v; } };
/* Opens scopes, the largest first, as long as there is room for what is in them. */
T.autoOpen = (rows, opened, room) => {
  for (let turn = 0; turn < 200; turn++) {
    const sizes = new Map(); let visible = 0;
    for (const { groups } of rows) { const shut = groups.find((id) => !opened.open.has(id)); if (shut) sizes.set(shut, (sizes.get(shut) || 0) + 1); else visible++; }
    const inside = (id) => { const next = new Set(); for (const { groups } of rows) { const at = groups.indexOf(id); if (at >= 0) next.add(groups[at + 1] || groups); } return next.size; };
    const candidates = [...sizes].filter(([id]) => !opened.closed.has(id)).sort((a, b) => b[1] - a[1]), now = visible + sizes.size;
    const pick = candidates.find(([id]) => now - 1 + inside(id) <= room || inside(id) === 1 || (now < 6 && now + inside(id) < 2.5 * room));
    if (!pick) return;
    opened.open.add(pick[0]);
  }
};
T.dearest = (shown) => { let best = null; for (const n of shown.nodes.values()) if (n.cycles > (best ? best.cycles : 0)) best = n; return best && best.id; };
T.middle = (shown) => [...shown.nodes.keys()][Math.floor(shown.nodes.size / 2)];
T.around = (shown, center, most) => {
  const next = new Map();
  for (const [a, b] of shown.edges) { next.set(a, [...(next.get(a) || []), b]); next.set(b, [...(next.get(b) || []), a]); }
  const found = new Set([center]), queue = [center];
  while (queue.length && found.size < most) for (const n of (next.get(queue.shift()) || []).slice(0, 6)) if (!found.has(n) && found.size < most) { found.add(n); queue.push(n); }
  return { nodes: new Map([...shown.nodes].filter(([id]) => found.has(id))), edges: shown.edges.filter(([a, b]) => found.has(a) && found.has(b)) };
};
T.drawGraph = (shown, opened, wanted) => {
  const layout = new dagre.graphlib.Graph();
  layout.setGraph({ rankdir: "TB", nodesep: 16, ranksep: 30, edgesep: 8, marginx: 16, marginy: 16 });
  layout.setDefaultEdgeLabel(() => ({}));
  const cut = (text, n) => (text.length > n ? "…" + text.slice(-n) : text);
  for (const n of shown.nodes.values()) {
    n.head = n.kind === "group" ? "▸ " + cut(n.label.split("/").slice(-2).join("/"), 34) : cut(n.label, 30);
    n.foot = n.kind === "group" ? `${T.count(n.count)} instructions` : `${n.kind === "call" ? "▸ " : ""}${n.opcode} ${n.shape.replace(/\{[^}]*\}/g, "").slice(0, 26)}`;
    if (n.cycles) n.foot += ` · ${T.share(n.cycles / T.main.cycles)}`;
    layout.setNode(n.id, { width: Math.max(70, 7 * Math.max(n.head.length, 0.92 * n.foot.length) + 22), height: 40 });
  }
  for (const [a, b] of shown.edges) layout.setEdge(a, b);
  dagre.layout(layout);
  const size = layout.graph(), w = Math.max(size.width || 100, 300), height = Math.max(size.height || 100, 200);
  const svg = h("svg:svg", { width: "100%", height: "100%", tabindex: "0", style: "cursor:grab" }), world = h("svg:g", {});
  svg.append(h("svg:defs", {}, h("svg:marker", { id: "tip-of-edge", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, h("svg:path", { d: "M0 0L8 4L0 8z", fill: "var(--soft)" }))), world);
  for (const e of layout.edges()) {
    const points = layout.edge(e).points, on = e.v === wanted || e.w === wanted;
    let d = `M${points[0].x} ${points[0].y}`;
    for (let i = 1; i < points.length - 1; i++) { const mx = (points[i].x + points[i + 1].x) / 2, my = (points[i].y + points[i + 1].y) / 2; d += `Q${points[i].x} ${points[i].y} ${mx} ${my}`; }
    d += `L${points[points.length - 1].x} ${points[points.length - 1].y}`;
    world.append(h("svg:path", { class: on ? "edge on" : "edge", d, "marker-end": "url(#tip-of-edge)" }));
  }
  let center = null, dear = null;
  for (const n of shown.nodes.values()) {
    const at = layout.node(n.id), x = at.x - at.width / 2, y = at.y - at.height / 2;
    if (n.id === wanted) center = at;
    if (n.cycles > (dear ? dear.cycles : 0)) dear = { cycles: n.cycles, x: at.x, y: at.y };
    const box = h("svg:g", { class: `node-box ${n.kind} ${n.id === wanted ? "on" : ""}`, transform: `translate(${x},${y})`, "data-tip": n.kind === "group" ? n.label : `%${n.label} = ${n.shape} ${n.opcode}${n.cycles ? `\n${T.count(n.cycles)} cycles, bound by ${T.worst(n.causes)[0]}` : ""}` }, h("svg:rect", { width: at.width, height: at.height, rx: n.kind === "op" ? 4 : 9 }));
    if (n.cycles) { let from = 0; for (const c of T.causes) if (n.causes[c]) { const wide = (at.width - 10) * n.causes[c] / n.cycles; box.append(h("svg:rect", { x: 5 + from, y: at.height - 6, width: wide, height: 3, style: `fill:${T.colour(c)};stroke:none` })); from += wide; } }
    box.append(h("svg:text", { x: at.width / 2, y: 15, "text-anchor": "middle", "font-weight": 600 }, n.head), h("svg:text", { class: "faint", x: at.width / 2, y: 29, "text-anchor": "middle" }, n.foot));
    box.addEventListener("click", () => { if (n.kind === "group") return; center = at; const s = T.sites.get(n.id); T.go({ view: "graph", graph: T.state.graph, hlo: n.id, site: s ? s.name : undefined }, true); svg.querySelectorAll(".on").forEach((x2) => x2.classList.remove("on")); box.classList.add("on"); });
    box.addEventListener("dblclick", () => { const id = n.kind === "group" ? n.id : n.kind === "call" ? n.body : null; if (!id) return; opened.open.add(id); opened.closed.delete(id); T.draw(); });
    world.append(box);
  }
  let k = 1, tx = 0, ty = 0, drag = null, isMine = false; /* isMine: the reader chose what is in the window */
  const set = () => world.setAttribute("transform", `translate(${tx},${ty}) scale(${k})`);
  const isSeen = (at) => at.x * k + tx > at.width / 2 * k && at.x * k + tx < svg.clientWidth - at.width / 2 * k && at.y * k + ty > 20 * k && at.y * k + ty < svg.clientHeight - 20 * k;
  const fit = () => { const cw = svg.clientWidth, ch = svg.clientHeight; k = Math.min(1, Math.max(0.6, Math.min(cw / w, ch / height))); tx = (cw - w * k) / 2; ty = height * k < ch ? (ch - height * k) / 2 : 0; const to = center || dear; if (to && (w * k > cw || height * k > ch)) { k = Math.max(k, 0.7); tx = w * k > cw ? Math.min(0, Math.max(cw - w * k, cw / 2 - to.x * k)) : (cw - w * k) / 2; ty = height * k > ch ? Math.min(0, Math.max(ch - height * k, ch / 2 - to.y * k)) : (ch - height * k) / 2; } set(); };
  T.shown(fit);
  /* What is said about the selected node stands beside the graph and makes it narrower. */
  new ResizeObserver(() => { if (center ? !isSeen(center) : !isMine) fit(); }).observe(svg);
  svg.addEventListener("wheel", (e) => { e.preventDefault(); const f = Math.exp(-e.deltaY * 0.0015), r = svg.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top; tx = x - (x - tx) * f; ty = y - (y - ty) * f; k *= f; isMine = true; set(); }, { passive: false });
  svg.addEventListener("mousedown", (e) => { drag = { x: e.clientX - tx, y: e.clientY - ty }; });
  svg.addEventListener("mousemove", (e) => { if (drag) { tx = e.clientX - drag.x; ty = e.clientY - drag.y; isMine = true; set(); } });
  addEventListener("mouseup", () => { drag = null; });
  return svg;
};
