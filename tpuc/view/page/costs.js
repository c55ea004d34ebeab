"use strict";
/* Costs in the user's own terms: source lines, and the tree of operation names. */
T.views.costs = { name: "Source", draw: () => h("div", {}, T.panel("Source lines", T.lineTable(Infinity, 25)), T.panel("Operations by name", T.opTree())) };
T.opTree = () => {
  const root = { name: "", path: "", cycles: 0, causes: {}, children: new Map() };
  const add = (node, c) => { node.cycles += c.cycles; for (const [k, v] of Object.entries(c.causes)) node.causes[k] = (node.causes[k] || 0) + v; };
  for (const c of T.opCosts.values()) {
    let node = root;
    add(node, c);
    for (const part of T.scopes(c.key)) {
      if (!node.children.has(part)) node.children.set(part, { name: part, path: node.path ? `${node.path}/${part}` : part, cycles: 0, causes: {}, children: new Map() });
      node = node.children.get(part);
      add(node, c);
    }
  }
  const holder = h("div", { class: "tree" }), wanted = T.state.op || "";
  const rows = (node, depth, into) => {
    for (let child of [...node.children.values()].sort((a, b) => b.cycles - a.cycles)) {
      let label = child.name;
      while (child.children.size === 1) { child = [...child.children.values()][0]; label += "/" + child.name; }
      const inner = h("div", { hidden: !(depth < 2 || wanted.startsWith(child.path)) }), mark = h("span", { class: "soft" }, child.children.size ? (inner.hidden ? "▸ " : "▾ ") : "  ");
      let filled = false;
      const fill = () => { if (!filled) { rows(child, depth + 1, inner); filled = true; } };
      if (!inner.hidden) fill();
      into.append(h("div", { class: `node ${wanted === child.path ? "on" : ""}`, "data-tip": child.path, onclick: (e) => { if (child.children.size && (e.offsetX < 40 + 16 * depth || wanted === child.path)) { fill(); inner.hidden = !inner.hidden; mark.textContent = inner.hidden ? "▸ " : "▾ "; } else T.go({ ...T.state, op: child.path }, false); } },
        h("span", { class: "label", style: { paddingLeft: 16 * depth + "px" } }, mark, label), h("span", { class: "right" }, T.count(child.cycles)), h("span", { class: "right soft" }, T.share(child.cycles / T.main.cycles)), T.bar(child.causes, child.cycles)), inner);
    }
  };
  rows(root, 0, holder);
  return holder;
};
