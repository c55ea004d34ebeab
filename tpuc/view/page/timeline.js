"use strict";
/* Time: kernel calls, and within them where things happen: grid steps, transfers in flight, waits, passes. */
T.views.timeline = { name: "Timeline", full: true, draw: () => {
  const m = T.main, rows = m.calls.rows, calls = [];
  for (let i = 0; i < rows.length; i += 4) calls.push({ site: m.sites[rows[i]], start: rows[i + 1], cycles: rows[i + 2], calls: rows[i + 3] });
  const tracks = ["calls", "grid steps", "DMA in", "DMA out", ...(m.slice ? ["between chips"] : []), "waits", ...Array.from({ length: m.chip.mxus }, (_, i) => `MXU ${i}`)];
  const left = 92, top = 30, gap = 6, row = Object.fromEntries(tracks.map((name, i) => [name, i])), most = top + tracks.length * (44 + gap) + 8;
  const canvas = h("canvas", { tabindex: "0", style: { width: "100%", height: "100%", cursor: "grab" } });
  let high = 24;
  const view = T.timeView && T.timeView.cycles === m.cycles ? T.timeView : (T.timeView = { from: 0, to: m.cycles, cycles: m.cycles });
  const selected = calls.filter((c) => c.site.name === T.state.site);
  if (selected.length && T.state.zoom !== "no" && view.to - view.from > 3.5 * selected[0].cycles && T.zoomed !== T.state.site) { T.zoomed = T.state.site; view.from = Math.max(0, selected[0].start - selected[0].cycles); view.to = selected[0].start + 2 * selected[0].cycles; }
  const times = new Map(), status = h("span", { class: "soft grow" }), perMxu = Math.max(1, Math.round((m.chip.mxu_units || m.chip.mxus) / m.chip.mxus));
  /* A name, or of a numbered one its number, or nothing. */
  const fitting = (c, text, room) => [text, text.replace(/^.*(?=\.\d+$)/, "")].find((x) => c.measureText(x).width <= room) || "";
  let boxes = [], hover = null;
  const load = (kernel) => { if (!times.has(kernel)) { times.set(kernel, null); T.part("time." + kernel).then((t) => { times.set(kernel, t); draw(); }); } return times.get(kernel); };
  const draw = () => {
    if (!canvas.isConnected) return;
    const scale = devicePixelRatio || 1, w = canvas.clientWidth, height = canvas.clientHeight;
    high = Math.max(16, Math.min(44, Math.floor((height - top - 8) / tracks.length) - gap));
    canvas.width = w * scale; canvas.height = height * scale;
    const c = canvas.getContext("2d");
    c.scale(scale, scale);
    const ink = T.css("--ink"), soft = T.css("--soft"), line = T.css("--line"), colours = Object.fromEntries(T.causes.map((x) => [x, T.css("--c-" + x)]));
    c.font = '11px system-ui, "DejaVu Sans", sans-serif'; c.textBaseline = "middle";
    const X = (t) => left + (w - left - 10) * (t - view.from) / (view.to - view.from), per = (view.to - view.from) / (w - left - 10);
    boxes = [];
    const step = T.nice((view.to - view.from) / 8);
    c.fillStyle = soft; c.strokeStyle = line; c.textAlign = "center";
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) { c.beginPath(); c.moveTo(X(t), top - 6); c.lineTo(X(t), height); c.stroke(); c.fillText(T.count(t), X(t), 12); }
    tracks.forEach((name, i) => { c.textAlign = "right"; c.fillStyle = soft; c.fillText(name, left - 8, top + i * (high + gap) + high / 2); });
    c.save(); c.beginPath(); c.rect(left, 0, w - left, height); c.clip();
    const box = (track, start, end, colour, about, text) => {
      const x0 = Math.max(X(start), left - 2), x1 = Math.min(X(end), w + 2);
      if (x1 < left || x0 > w) return;
      const y = top + track * (high + gap), wide = Math.max(x1 - x0, 0.7);
      c.fillStyle = colour; c.fillRect(x0, y, wide, high);
      if (wide > 3) { c.strokeStyle = T.css("--panel"); c.lineWidth = 0.6; c.strokeRect(x0, y, wide, high); }
      boxes.push({ x0, x1: x0 + Math.max(wide, 3), y, about });
      if (text && wide > 20 && (track === 0 || c.measureText(text).width <= wide - 6)) { c.save(); c.beginPath(); c.rect(x0, y, wide, high); c.clip(); c.fillStyle = "#fff"; c.textAlign = "left"; c.fillText(fitting(c, text, wide - 6), x0 + 4, y + high / 2); c.restore(); }
    };
    let lastX = -9;
    const inView = calls.filter((k) => k.start + k.cycles >= view.from && k.start <= view.to);
    for (const k of inView) {
      const x1 = X(k.start + k.cycles);
      if (x1 - lastX < 0.4 && k.site.name !== T.state.site) continue;
      lastX = x1;
      box(0, k.start, k.start + k.cycles, colours[T.worst(k.site.causes)[0]] || soft, { call: k, text: `${k.site.name}${k.calls > 1 ? `, ${k.calls} calls added up` : ""}\n${T.count(k.cycles)} cycles from ${T.count(k.start)}\nbound by ${T.worst(k.site.causes)[0]}\n${k.site.note}` }, k.site.name);
      if (k.site.name === T.state.site) { c.strokeStyle = ink; c.lineWidth = 2; c.strokeRect(Math.max(X(k.start), left), top - 1, Math.max(2, X(k.start + k.cycles) - Math.max(X(k.start), left)), high + 2); }
    }
    let detailed = 0;
    for (const k of inView) {
      if (k.calls > 1 || k.cycles / per < 40 || detailed >= 60) continue;
      const t = load(k.site.kernel);
      detailed++;
      if (!t) continue;
      const s = k.start, visible = (a, b) => s + b >= view.from && s + a <= view.to;
      for (let i = 0; i < t.steps.length; i += 2) if (visible(t.steps[i], t.steps[i + 1])) box(1, s + t.steps[i], s + t.steps[i + 1], (i / 2) % 2 ? colours.loop : colours.latency, { call: k, text: `grid step ${i / 2} of ${k.site.name}\n${T.count(t.steps[i + 1] - t.steps[i])} cycles` }, String(i / 2));
      for (let i = 0; i < t.transfers.length; i += 7) {
        const [issue, from, to, done, size, cause, name] = t.transfers.slice(i, i + 7), track = row[cause === "dma_out" ? "DMA out" : cause === "ici" ? "between chips" : "DMA in"];
        if (!visible(issue, done)) continue;
        c.globalAlpha = 0.28; box(track, s + issue, s + done, colours[cause], { call: k, text: "" }); c.globalAlpha = 1;
        boxes.pop();
        box(track, s + from, s + to, colours[cause], { call: k, text: `${t.moved[name]}: ${T.bytes(size)} ${T.directions[cause]}\nissued at +${T.count(issue)}, in the engine +${T.count(from)} to +${T.count(to)}, done at +${T.count(done)}` }, t.moved[name]);
      }
      for (let i = 0; i < t.waits.length; i += 2) if (visible(t.waits[i], t.waits[i + 1])) box(row.waits, s + t.waits[i], s + t.waits[i + 1], colours[T.waitCause(t, i / 2)], { call: k, text: `waits ${T.count(t.waits[i + 1] - t.waits[i])} cycles for a transfer ${T.directions[T.waitCause(t, i / 2)]}` });
      for (let i = 0; i < t.bursts.length; i += 3) if (visible(t.bursts[i + 1], t.bursts[i + 2])) box(row["MXU 0"] + Math.min(m.chip.mxus - 1, Math.floor(t.bursts[i] / perMxu)), s + t.bursts[i + 1], s + t.bursts[i + 2], colours.mxu, { call: k, text: `passes on unit ${t.bursts[i]}\n${T.count(t.bursts[i + 2] - t.bursts[i + 1])} cycles` });
      if (!t.is_whole && visible(t.cycles, k.cycles)) box(1, s + t.cycles, s + k.cycles, line, { call: k, text: `not followed beyond ${T.count(t.cycles)} cycles` });
    }
    c.restore();
    status.textContent = `${T.count(view.to - view.from)} cycles, ${T.time(view.to - view.from)}${m.chip.cores > 1 ? ` · one of ${m.chip.cores} cores, which share each grid` : ""} · ${inView.length} calls${detailed ? "" : " · zoom in to see grid steps, transfers and passes"}${m.calls.shown < m.calls.total ? ` · the first ${T.count(m.calls.shown)} of ${T.count(m.calls.total)} calls` : ""}`;
  };
  const clamp = (from, to) => { const span = Math.min(Math.max(to - from, 40), m.cycles); view.from = Math.max(0, Math.min(from, m.cycles - span)); view.to = view.from + span; draw(); };
  const zoom = (factor, at) => { const t = view.from + (view.to - view.from) * at; clamp(t - (t - view.from) * factor, t + (view.to - t) * factor); };
  const share = (e) => Math.min(1, Math.max(0, (e.offsetX - left) / (canvas.clientWidth - left - 10)));
  let drag = null;
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) { const by = (e.deltaX || e.deltaY) * (view.to - view.from) / canvas.clientWidth; clamp(view.from + by, view.to + by); } else zoom(Math.exp(e.deltaY * 0.002), share(e)); }, { passive: false });
  canvas.addEventListener("mousedown", (e) => { drag = { x: e.clientX, from: view.from, to: view.to, moved: false }; });
  addEventListener("mouseup", () => { setTimeout(() => { drag = null; }, 0); });
  canvas.addEventListener("mousemove", (e) => {
    if (drag) { const by = (drag.x - e.clientX) * (drag.to - drag.from) / (canvas.clientWidth - left - 10); if (Math.abs(drag.x - e.clientX) > 3) drag.moved = true; clamp(drag.from + by, drag.to + by); return; }
    hover = [...boxes].reverse().find((b) => e.offsetX >= b.x0 && e.offsetX <= b.x1 && e.offsetY >= b.y && e.offsetY <= b.y + high);
    if (hover && hover.about.text) canvas.dataset.tip = hover.about.text; else delete canvas.dataset.tip;
  });
  canvas.addEventListener("click", () => { if (hover && !(drag && drag.moved)) { T.zoomed = hover.about.call.site.name; T.go({ view: "timeline", site: hover.about.call.site.name, kernel: hover.about.call.site.kernel }, true); draw(); } });
  canvas.addEventListener("dblclick", () => { if (hover) { const k = hover.about.call; clamp(k.start - 0.03 * k.cycles, k.start + 1.03 * k.cycles); } });
  canvas.addEventListener("keydown", (e) => { const by = 0.2 * (view.to - view.from); if (e.key === "ArrowLeft" || e.key === "a") clamp(view.from - by, view.to - by); else if (e.key === "ArrowRight" || e.key === "d") clamp(view.from + by, view.to + by); else if (e.key === "+" || e.key === "w") zoom(0.6, 0.5); else if (e.key === "-" || e.key === "s") zoom(1.7, 0.5); else return; e.preventDefault(); e.stopPropagation(); });
  new ResizeObserver(draw).observe(canvas);
  return h("section", { style: { display: "flex", flexDirection: "column", height: "100%" } }, h("div", { class: "row", style: { marginBottom: "8px" } }, status, h("button", { onclick: () => clamp(0, m.cycles) }, "whole run"), selected.length ? h("button", { onclick: () => { const k = selected[0]; clamp(k.start - 0.03 * k.cycles, k.start + 1.03 * k.cycles); } }, `first call of ${T.state.site}`) : ""),
    h("div", { class: "frame", style: { flex: `0 1 ${most}px`, minHeight: 0 } }, canvas), T.legend(m.causes), h("p", { class: "soft", style: { margin: "6px 0 0" } }, "wheel zooms, drag moves, a click selects, two open a call; arrows and + − by keyboard. Faint: from issue until the flag is done; solid: in the engine."));
} };
T.directions = { dma_in: "from HBM", dma_out: "to HBM", ici: "to another chip" };
T.waitCause = (time, number) => (time.wait_causes || [])[number] || "dma_in"; /* pages of earlier versions do not say */
T.nice = (x) => { const e = 10 ** Math.floor(Math.log10(Math.max(x, 1))), f = x / e; return (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10) * e; };
