"use strict";
/* Starts the page: tabs, keys, search, what is selected. */
T.order = ["overview", "kernels", "kernel", "passes", "graph", "timeline", "memory", "costs", "slice", "compare"];
T.available = () => T.order.filter((v) => T.views[v] && (!T.views[v].when || T.views[v].when()));
T.draw = async () => {
  T.state = T.read();
  T.choose(T.mains[+T.state.doc] ? +T.state.doc : 0);
  T.complete();
  if (!T.available().includes(T.state.view)) T.state.view = "overview";
  const view = T.views[T.state.view], main = document.getElementById("view");
  const tabs = T.available().map((v, i) => h("a", { href: T.address({ view: v, ...T.selected() }), "aria-current": v === T.state.view ? "page" : undefined, title: `key ${i + 1}` }, T.views[v].name));
  document.getElementById("tabs").replaceChildren(...tabs);
  const turn = (T.turn = (T.turn || 0) + 1), made = await view.draw();
  if (turn !== T.turn) return; /* another view was asked for meanwhile */
  main.style.overflow = view.full ? "hidden" : "auto";
  main.replaceChildren(made);
  for (const then of T.later.splice(0)) then();
  const on = view.full ? null : made.querySelector("tr.on, .node.on");
  if (on) on.scrollIntoView({ block: "nearest" });
  T.inspect();
};
/* An address by hand names a kernel or a call of it, or a line by its end: the others follow. */
T.complete = () => {
  const s = T.state, name = s.site || (T.sites.has(s.hlo) ? s.hlo : undefined);
  if (s.line) s.line = T.lineNamed(s.line);
  if (s.kernel && !T.sitesOfKernel.has(s.kernel) && T.sites.has(s.kernel)) { s.site = name || s.kernel; s.kernel = T.sites.get(s.kernel).kernel; }
  const calls = s.kernel ? T.sitesOfKernel.get(s.kernel) || [] : [];
  s.site = name || s.site || (calls[0] || {}).name;
};
T.selected = () => { const { site, kernel, hlo, line, op, doc } = T.state; return { site, kernel, hlo, line, op, doc }; };
/* Of two documents the one that the views show. */
T.choose = (doc) => {
  if (T.main === T.mains[doc] || !T.mains[doc]) return;
  T.doc = doc; T.main = T.mains[doc]; T.opened = {};
  T.index();
  const m = T.main, other = T.mains[1 - doc];
  document.getElementById("model").textContent = m.model;
  const swap = other ? [" · ", T.link(`show ${doc ? "A" : "B"}`, { view: T.state.view === "compare" ? "overview" : T.state.view, doc: 1 - doc }, { title: `${other.model} on ${other.target}` })] : [];
  document.getElementById("facts").replaceChildren(`on ${m.target}`, ...swap, ` · ${T.count(m.cycles)} cycles · ${T.time(m.cycles)}${m.is_estimate ? " · estimated" : ""}`);
};

/* About what is selected, with ways to it in all other views. */
T.inspect = async () => {
  const about = document.getElementById("about"), s = T.state, found = [];
  const site = s.site || (s.kernel && ((T.sitesOfKernel.get(s.kernel) || [])[0] || {}).name);
  if (s.hlo) found.push(await T.aboutHlo(s.hlo));
  if (s.bundle !== undefined && s.kernel) found.push(await T.aboutBundle(s.kernel, +s.bundle));
  if (s.line) found.push(await T.aboutLine(s.line));
  if (s.op) found.push(T.aboutOp(s.op));
  if (site && T.sites.has(site)) found.push(T.aboutSite(T.sites.get(site)));
  about.replaceChildren(...found.filter((x) => x));
};
T.aboutSite = (s) => h("section", {}, h("h2", {}, s.name), T.bar(s.causes, s.cycles, true), T.legend(s.causes, s.cycles), h("h3", {}, "kernel"),
  T.facts([["cycles", T.count(s.cycles)], ["share", T.share(s.cycles / T.main.cycles)], ["calls", T.count(s.calls)], ["MXU", T.share(s.mxu)], ["HBM moved", T.bytes(s.hbm_bytes)], ["least", T.bytes(s.least_bytes)], ["roof", `${s.roofline}, ${T.share(s.roofline_cycles / s.cycles)}`], ["what", s.note]]),
  h("h3", {}, "see it"), h("p", {}, T.spaced([T.link("bundles", { kernel: s.kernel, site: s.name }), T.link("LLO", { kernel: s.kernel, site: s.name, tab: "llo" }), T.link("VMEM", { kernel: s.kernel, site: s.name, tab: "vmem" }), T.link("graph", { hlo: s.name, site: s.name }), T.link("timeline", { view: "timeline", site: s.name }), T.link("memory", { view: "memory", site: s.name })])),
  s.origins.length ? h("h3", {}, "comes from") : "", T.originList(s.origins, s.name));
T.spaced = (items) => items.flatMap((x, i) => (i ? [" · ", x] : [x]));
T.originList = (origins, site) => {
  const rows = origins.map((o) => ({ o, place: T.place(o), name: T.opName(o), cost: site ? ((T.main.costs.find((c) => c.origin === o) || { sites: {} }).sites[site] || 0) : 0 })).sort((a, b) => b.cost - a.cost).slice(0, 30);
  return h("div", {}, rows.map((r) => h("p", { style: { margin: "0 0 6px" } }, T.link(T.shortOp(r.name) || "(no name)", { op: r.name }, { title: r.name }), r.cost ? h("span", { class: "soft" }, ` ${T.count(r.cost)}`) : "", r.place ? [h("br"), T.link(T.shortPlace(r.place), { line: r.place }, { title: r.place, class: "soft" })] : "", T.main.lines[r.place] ? [" ", h("code", {}, T.main.lines[r.place].slice(0, 70))] : "")), origins.length > 30 ? h("p", { class: "soft" }, `${origins.length - 30} more`) : "");
};
T.aboutHlo = async (name) => {
  for (const which of ["graph.final", "graph.input"]) {
    const g = await T.graph(which), at = g && g.names.get(name);
    if (!at) continue;
    const c = g.computations[at[0]], row = c.instructions[at[1]], site = which === "graph.final" ? g.siteOf(name) : null;
    const users = c.instructions.filter((r) => r[3].includes(at[1])).map((r) => r[0]);
    const names = (list) => list.length ? T.spaced(list.slice(0, 8).map((n) => T.link(n, { hlo: n }))) : "none";
    return h("section", {}, h("h2", {}, "%" + name), T.facts([["operation", row[1]], ["in", `${c.name}, ${which === "graph.final" ? "what runs" : "the model"}`]]), h("p", {}, h("code", {}, row[2])), h("h3", {}, "operands"), h("p", {}, names(row[3].map((i) => c.instructions[i][0]))), h("h3", {}, "users"), h("p", {}, names(users)), row[4] ? [h("h3", {}, "attributes"), h("p", { class: "mono", style: { wordBreak: "break-word" } }, row[4])] : "",
      h("h3", {}, "see it"), h("p", {}, T.spaced([T.link("graph", { hlo: name, graph: which.slice(6) }), T.link("in the passes", { view: "passes", hlo: name, step: T.state.step }), site && T.link(`bundles of ${site}`, { kernel: T.sites.get(site).kernel, site, hlo: name }), site && T.link("kernel", { view: "kernels", site })].filter((x) => x))), row[6].length ? [h("h3", {}, "comes from"), T.originList(row[6])] : "");
  }
  return h("section", {}, h("h2", {}, "%" + name), h("p", { class: "soft" }, "neither in the model nor in what runs; what passes make and undo again is in their texts alone"));
};
T.aboutBundle = async (kernel, number) => {
  const k = await T.part("kernel." + kernel), row = k && k.code.filter((r) => r[0] === "b")[number];
  if (!row) return null;
  const origins = [...new Set(row.slice(5).flatMap((op) => k.origins[k.sources[op[2]]] || []))];
  return h("section", {}, h("h2", {}, `bundle ${number}`), row[2] >= 0 ? T.facts([["runs", T.count(row[2])], ["stalled", row[3] ? `${T.count(row[3])} cycles: ${row[4]}` : "never"]]) : "", row.length > 5 ? row.slice(5).map((op) => h("p", { style: { margin: "0 0 4px" } }, h("code", {}, k.texts[op[1]]), k.sources[op[2]] ? [h("br"), h("span", { class: "soft" }, k.slots[op[0]], " for "), T.link("%" + k.sources[op[2]], { kernel, bundle: number, hlo: k.sources[op[2]] })] : "")) : h("p", { class: "soft" }, "empty: a latency that nothing hides"), origins.length ? [h("h3", {}, "comes from"), T.originList(origins)] : "");
};
T.aboutLine = async (line) => {
  const c = T.lineCosts.get(line), g = await T.graph("graph.final"), names = [];
  for (const comp of g ? g.computations : []) for (const row of comp.instructions) if (names.length < 40 && row[6].some((o) => T.place(o) === line)) names.push(row[0]);
  return h("section", {}, h("h2", {}, T.shortPlace(line)), T.main.lines[line] ? h("p", {}, h("code", {}, T.main.lines[line])) : "", c ? [T.bar(c.causes, c.cycles, true), T.legend(c.causes, c.cycles), T.facts([["cycles", T.count(c.cycles)], ["share", T.share(c.cycles / T.main.cycles)]]), h("h3", {}, "bundles of"), T.siteList(c.sites, line)] : h("p", { class: "soft" }, "no cycles of its own: folded away, or part of another operation"), names.length ? [h("h3", {}, "instructions"), h("p", {}, T.spaced(names.map((n) => T.link(n, { hlo: n, line }))))] : "");
};
T.siteList = (sites, line) => h("div", {}, Object.entries(sites).sort((a, b) => b[1] - a[1]).slice(0, 20).map(([n, v]) => h("p", { style: { margin: "0 0 3px" } }, T.link(n, { kernel: (T.sites.get(n) || {}).kernel, site: n, line }), h("span", { class: "soft" }, ` ${T.count(v)}`))));
T.aboutOp = (op) => {
  const all = { cycles: 0, causes: {}, sites: {}, origins: [] };
  for (const c of T.opCosts.values()) if (c.key === op || c.key.startsWith(op + "/")) { all.cycles += c.cycles; all.origins.push(...c.origins); for (const part of ["causes", "sites"]) for (const [k, v] of Object.entries(c[part])) all[part][k] = (all[part][k] || 0) + v; }
  const lines = [...new Set(all.origins.map((o) => T.place(o)).filter((p) => p))];
  return h("section", {}, h("h2", {}, T.shortOp(op)), T.bar(all.causes, all.cycles, true), T.legend(all.causes, all.cycles), T.facts([["cycles", T.count(all.cycles)], ["share", T.share(all.cycles / T.main.cycles)]]), h("h3", {}, "kernels"), T.siteList(all.sites), lines.length ? [h("h3", {}, "lines"), lines.slice(0, 20).map((l) => h("p", { style: { margin: "0 0 3px" } }, T.link(T.shortPlace(l), { line: l })))] : "");
};

/* Search over everything that has a name. */
T.search = async (text) => {
  const found = [], wanted = text.toLowerCase(), add = (kind, name, state) => { if (found.length < 60 && name.toLowerCase().includes(wanted)) found.push({ kind, name, state }); };
  for (const s of T.main.sites) add("kernel", s.name, { kernel: s.kernel, site: s.name });
  for (const l of T.lineCosts.keys()) add("line", l, { line: l });
  for (const o of T.opCosts.keys()) add("operation", o, { op: o });
  const p = await T.part("passes");
  (p ? p.steps : []).forEach((s, i) => s.changed && add("pass", s.name, { pass: s.name, step: i }));
  for (const which of ["graph.final", "graph.input"]) { const g = await T.graph(which); if (g) for (const name of g.names.keys()) add(which === "graph.final" ? "HLO" : "input", name, { hlo: name, graph: which.slice(6) }); }
  return found;
};
T.start = async () => {
  T.mains = [await T.part("main", 0)];
  if (T.has("main", 1)) T.mains.push(await T.part("main", 1));
  if (T.mains.length > 1 && !location.hash) history.replaceState(null, "", "#view=compare");
  const box = document.getElementById("search"), found = document.getElementById("found");
  try { const theme = T.read().theme || localStorage.getItem("tpuc-theme"); if (theme) document.documentElement.dataset.theme = theme; } catch { /* a page from a file may have no storage */ }
  document.getElementById("theme").onclick = () => { const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; document.documentElement.dataset.theme = dark ? "light" : "dark"; try { localStorage.setItem("tpuc-theme", document.documentElement.dataset.theme); } catch { /* see above */ } T.draw(); };
  const keys = document.getElementById("keys"), rows = [["1 … 9", "views"], ["/", "search"], ["j k", "next and previous row"], ["Enter", "open what is selected"], ["[ ]", "back and forward"], ["t", "dark or light"], ["?", "these keys"]];
  keys.append(h("h2", {}, "Keys"), h("table", {}, rows.map(([k, v]) => h("tr", {}, h("td", {}, k), h("td", {}, v)))), h("p", { class: "soft" }, "The address of the page names what is selected: copy it to share what you see."), h("button", { onclick: () => keys.close() }, "close"));
  document.getElementById("help").onclick = () => keys.showModal();
  let hits = [], at = 0;
  const list = () => { found.hidden = !box.value; found.replaceChildren(...(hits.length ? hits.map((f, i) => h("a", { class: i === at ? "on" : "", href: T.address(f.state), onclick: () => { found.hidden = true; } }, h("small", {}, f.kind), h("span", {}, f.name))) : [h("p", { class: "soft", style: { margin: "6px 8px" } }, "nothing of that name")])); };
  box.oninput = async () => { hits = box.value ? await T.search(box.value) : []; at = 0; list(); };
  box.onkeydown = (e) => { if (e.key === "ArrowDown" || e.key === "ArrowUp") { at = (at + (e.key === "ArrowDown" ? 1 : hits.length - 1)) % Math.max(hits.length, 1); list(); e.preventDefault(); } else if (e.key === "Enter" && hits[at]) { T.go(hits[at].state); found.hidden = true; box.blur(); } else if (e.key === "Escape") { found.hidden = true; box.blur(); } };
  document.addEventListener("click", (e) => { if (!found.contains(e.target) && e.target !== box) found.hidden = true; });
  document.addEventListener("keydown", (e) => {
    if (e.target.matches("input,select") || e.ctrlKey || e.metaKey || e.altKey) return;
    const views = T.available();
    if (e.key === "/") { box.focus(); e.preventDefault(); } else if (e.key === "t") document.getElementById("theme").click(); else if (e.key === "?") keys.showModal(); else if (e.key === "[") history.back(); else if (e.key === "]") history.forward();
    else if (e.key >= "1" && e.key <= "9" && views[+e.key - 1]) T.go({ view: views[+e.key - 1], ...T.selected() });
    else if (e.key === "j" || e.key === "k") { const rows2 = [...document.querySelectorAll("main tr.pick, main .line.pick, main .side>nav a")], now = rows2.findIndex((r) => r.classList.contains("on") || r.getAttribute("aria-current")); const next = rows2[Math.max(0, Math.min(rows2.length - 1, now + (e.key === "j" ? 1 : -1)))]; if (next) { next.click(); next.scrollIntoView({ block: "nearest" }); } }
    else if (e.key === "Enter" && T.state.site) T.go({ kernel: T.sites.get(T.state.site).kernel, site: T.state.site });
  });
  addEventListener("hashchange", T.draw);
  await T.draw();
  document.documentElement.dataset.ready = Math.round(performance.now());
};
/* A view that fails says so, instead of showing what was there before. */
T.failed = (error) => { document.documentElement.dataset.error = String(error && error.stack || error); document.getElementById("view").replaceChildren(h("p", { class: "hint" }, "This view cannot be drawn: " + error)); };
addEventListener("unhandledrejection", (e) => T.failed(e.reason));
addEventListener("error", (e) => { if (e.error) T.failed(e.error); });
T.start();
