"use strict";
/* Pass columns: passes that changed something, what each did side by side, remarks where they speak of. */
T.views.passes = { name: "Passes", full: true, draw: async () => {
  const p = await T.part("passes"), state = T.state, shown = T.allPasses ? p.steps.map((_, i) => i) : p.steps.flatMap((s, i) => (s.changed ? [i] : []));
  const wanted = p.steps.findIndex((s, i) => (state.step !== undefined ? i === +state.step : s.name === state.pass && (s.changed || T.allPasses)));
  const at = wanted >= 0 ? wanted : T.stepOf(p, shown, state.hlo) ?? shown[0];
  let before = p.text.length && 0;
  const nav = h("nav", {}, h("a", { onclick: () => { T.allPasses = !T.allPasses; T.draw(); }, class: "soft" }, T.allPasses ? `only the ${p.steps.filter((s) => s.changed).length} that changed something` : `show all ${p.steps.length} passes`),
    shown.map((i) => { const s = p.steps[i], delta = i ? s.instructions - p.steps[i - 1].instructions : s.instructions - T.countText(p.text); return h("a", { href: T.address({ pass: s.name, step: i }), "aria-current": i === at ? "page" : undefined, "data-tip": s.what }, s.name, h("small", {}, `${T.count(s.instructions)} instructions`, delta ? ` (${delta > 0 ? "+" : ""}${delta})` : "", s.remarks.length ? ` · ${s.remarks.length} remarks` : "")); }));
  if (at === undefined) return h("p", { class: "hint" }, "No pass changed anything.");
  const s = p.steps[at], did = Object.entries(s.counts).map(([k, v]) => `${k} ${v}`).join(", ");
  const names = new Set((s.remarks.join(" ").match(/%[\w.\-]+/g) || [])), { lines, marks } = T.diff(T.textAfter(p, at - 1), s.edits, s.remarks);
  const list = T.list(lines.length, 18, (i) => T.diffLine(lines[i], () => { T.unfold(lines, i); list.redraw(lines.length); }, () => list.redraw()), { className: "text diff", tall: "100%" });
  const find = state.hlo ? lines.findIndex((l) => l.kind !== "fold" && l.kind !== "note" && T.defines(l.after || l.before || "", state.hlo)) : marks[0];
  if (find >= 0) list.show(find);
  let next = 0;
  const section = h("section", {}, h("div", { class: "row" }, h("h2", { class: "grow" }, s.name, " ", h("span", { class: "soft", style: { fontWeight: 400 } }, s.what)), h("button", { onclick: () => { next = (next + marks.length - 1) % Math.max(marks.length, 1); list.show(marks[next] || 0); }, title: "previous change" }, "↑"), h("button", { onclick: () => { next = (next + 1) % Math.max(marks.length, 1); list.show(marks[next] || 0); }, title: "next change" }, "↓"), h("span", { class: "soft" }, `${marks.length} changes · ${s.milliseconds} ms`)), did ? h("p", { class: "soft", style: { margin: "0 0 8px" } }, did) : "", list);
  return h("div", { class: "side" }, nav, section);
} };
/* Of an instruction without a pass: the first that makes or changes it. */
T.stepOf = (p, shown, name) => (name === undefined ? undefined : shown.find((i) => p.steps[i].edits.some((e) => e[2].some((line) => T.defines(line, name)))));
T.defines = (line, name) => line.trimStart().replace(/^ROOT /, "").startsWith(`%${name} =`);
T.countText = (lines) => lines.filter((l) => l.startsWith("  ")).length;
T.textAfter = (p, index) => {
  p.cache = p.cache || new Map([[-1, p.text]]);
  let from = index;
  while (!p.cache.has(from)) from--;
  let lines = p.cache.get(from);
  for (let i = from + 1; i <= index; i++) { lines = T.apply(lines, p.steps[i].edits); p.cache.set(i, lines); }
  return lines;
};
T.apply = (lines, edits) => {
  if (!edits.length) return lines;
  const out = []; let at = 0;
  for (const [first, gone, come] of edits) { for (; at < first; at++) out.push(lines[at]); at += gone; for (const line of come) out.push(line); }
  for (; at < lines.length; at++) out.push(lines[at]);
  return out;
};
T.diff = (before, edits, remarks) => {
  const lines = [], marks = [], notes = new Map();
  for (const r of remarks) { const name = (r.match(/%[\w.\-]+/) || [""])[0]; notes.set(name, [...(notes.get(name) || []), r]); }
  const general = notes.get("") || [];
  for (const r of general) lines.push({ kind: "note", text: r });
  const push = (line, to = lines) => {
    for (const text of new Set([line.after, line.before])) {
      const name = (text || "").match(/^\s+(?:ROOT )?(%[\w.\-]+) =/);
      if (name && notes.has(name[1])) { for (const r of notes.get(name[1])) to.push({ kind: "note", text: r }); notes.delete(name[1]); }
    }
    to.push(line);
  };
  let at = 0, after = 0;
  const same = (end) => {
    const count = end - at, context = 3, fold = count > 2 * context + 3;
    const from = fold ? (at ? at + context : at + (edits.length ? 0 : context)) : end, to = fold ? end - (end < before.length ? context : 0) : end;
    for (let i = at; i < Math.min(from, end); i++) push({ kind: "same", before: before[i], after: before[i], a: i, b: after + i - at });
    if (to > from) { const inner = []; for (let i = from; i < to; i++) push({ kind: "same", before: before[i], after: before[i], a: i, b: after + i - at }, inner); lines.push({ kind: "fold", hidden: inner }); }
    if (fold) for (let i = to; i < end; i++) push({ kind: "same", before: before[i], after: before[i], a: i, b: after + i - at });
    after += count; at = end;
  };
  for (const [first, gone, come] of edits) {
    same(first);
    marks.push(lines.length);
    for (let i = 0; i < Math.max(gone, come.length); i++) push({ kind: "edit", before: i < gone ? before[first + i] : undefined, after: i < come.length ? come[i] : undefined, a: first + i, b: after + i });
    at = first + gone; after += come.length;
  }
  same(before.length);
  for (const [name, rest] of notes) if (name) for (const r of rest) lines.unshift({ kind: "note", text: r });
  return { lines, marks };
};
T.foldText = (lines) => { const notes = lines.filter((l) => l.kind === "note").length; return `⋯ ${lines.length - notes} equal lines${notes ? `, ${notes} remarks` : ""}`; };
T.unfold = (lines, i) => lines.splice(i, 1, ...lines[i].hidden);
T.diffLine = (l, open, picked) => {
  if (l.kind === "fold") return h("div", { class: "fold", onclick: open }, T.foldText(l.hidden));
  if (l.kind === "note") return h("div", { class: "note", title: l.text }, h("span", {}, l.text));
  const side = (text, other, number, mark) => text === undefined ? h("span", {}) : h("span", { class: text !== other ? mark : "", title: text.trim(), onclick: () => { const name = text.match(/%([\w.\-]+) =/); if (name) { T.go({ ...T.state, hlo: name[1] }, true); picked(); } } }, h("span", { class: "gutter" }, number + 1), T.marked(text, other));
  return h("div", { class: `${l.kind}${T.state.hlo && T.defines(l.after || l.before || "", T.state.hlo) ? " on" : ""}` }, side(l.before, l.after, l.a, "del"), side(l.after, l.before, l.b, "add"));
};
T.marked = (text, other) => {
  /* The part of a changed line that differs stands out. */
  if (other === undefined || text === other) return text;
  let i = 0, j = 0;
  while (i < text.length && text[i] === other[i]) i++;
  while (j < text.length - i && j < other.length - i && text[text.length - 1 - j] === other[other.length - 1 - j]) j++;
  return i + j < 4 ? text : [text.slice(0, i), h("b", {}, text.slice(i, text.length - j)), text.slice(text.length - j)];
};
