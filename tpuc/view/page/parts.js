"use strict";
/* The document's parts, inflated when they are first asked for, and what is looked up in them. */
T.parts = new Map();
T.has = (name, doc = T.doc) => !!document.querySelector(`script[data-part="${CSS.escape(doc + "." + name)}"]`);
T.part = (name, doc = T.doc) => {
  const key = doc + "." + name;
  if (!T.parts.has(key)) T.parts.set(key, T.inflate(key));
  return T.parts.get(key);
};
T.inflate = async (key) => {
  const holder = document.querySelector(`script[data-part="${CSS.escape(key)}"]`);
  if (!holder) return null;
  const text = atob(holder.textContent), data = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) data[i] = text.charCodeAt(i);
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
};

T.index = () => {
  const m = T.main;
  T.sites = new Map(m.sites.map((s) => [s.name, s]));
  T.sitesOfKernel = new Map();
  for (const s of m.sites) T.sitesOfKernel.set(s.kernel, [...(T.sitesOfKernel.get(s.kernel) || []), s]);
  T.place = (o) => { const [, file, line] = m.origins[o] || ["", "", 0]; return file && line ? `${file}:${line}` : file; };
  T.opName = (o) => (m.origins[o] || [""])[0];
  T.lineCosts = new Map(); T.opCosts = new Map();
  for (const c of m.costs) {
    const key = c.origin < 0 ? "(not known)" : T.place(c.origin) || T.opName(c.origin);
    T.addCost(T.lineCosts, key, c);
    T.addCost(T.opCosts, c.origin < 0 ? "(not named)" : T.opName(c.origin) || "(not named)", c);
  }
};
T.addCost = (map, key, c) => {
  const to = map.get(key) || { key, cycles: 0, causes: {}, sites: {}, origins: [] };
  for (const [k, v] of Object.entries(c.causes)) { to.causes[k] = (to.causes[k] || 0) + v; to.cycles += v; }
  for (const [k, v] of Object.entries(c.sites)) to.sites[k] = (to.sites[k] || 0) + v;
  to.origins.push(c.origin);
  map.set(key, to);
};
T.shortPlace = (place) => { const parts = place.split("/"); return parts.length > 2 ? "…/" + parts.slice(-2).join("/") : place; };
T.shortOp = (name) => { const parts = T.scopes(name); return parts.length > 3 ? "…/" + parts.slice(-3).join("/") : name; };
T.scopes = (name) => {
  const found = []; let depth = 0, start = 0;
  for (let i = 0; i < name.length; i++) {
    const c = name[i];
    if ("([{".includes(c)) depth++; else if (")]}".includes(c)) depth = Math.max(0, depth - 1);
    else if (c === "/" && !depth) { found.push(name.slice(start, i)); start = i + 1; }
  }
  found.push(name.slice(start));
  return found.filter((p) => p);
};
/* Where an instruction of the final module is: [computation, row], and the call site whose fusion it is in. */
T.graph = async (which) => {
  const g = await T.part(which);
  if (!g || g.names) return g;
  g.names = new Map(); g.calledBy = new Map();
  g.computations.forEach((c, ci) => c.instructions.forEach((row, i) => {
    if (!g.names.has(row[0])) g.names.set(row[0], [ci, i]);
    for (const called of row[5]) if (!g.calledBy.has(called)) g.calledBy.set(called, [ci, i]);
  }));
  g.siteOf = (name) => {
    let at = g.names.get(name);
    while (at) {
      const row = g.computations[at[0]].instructions[at[1]];
      if (T.sites.has(row[0])) return row[0];
      at = g.calledBy.get(at[0]);
    }
    return null;
  };
  return g;
};
/* The line that a name of an address means: itself, or the only one whose path ends so. */
T.lineNamed = (name) => {
  const full = T.lineCosts.has(name) ? [] : [...T.lineCosts.keys()].filter((line) => line.endsWith("/" + name));
  return full.length === 1 ? full[0] : name;
};
