/* Put into a page by `test_clicks.py`: clicks on what the views draw, where a reader's pointer would be, and writes down what
   each click led to. What lies above the middle of what is clicked gets the click; if that is something else, it is noted. */
(async () => {
  const seen = { steps: {}, covered: [], errors: [] }, wait = (ms) => new Promise((done) => setTimeout(done, ms));
  addEventListener("error", (e) => seen.errors.push(String(e.message)));
  addEventListener("unhandledrejection", (e) => seen.errors.push(String(e.reason)));
  const root = document.documentElement, $ = (s) => document.querySelector(s), all = (s) => [...document.querySelectorAll(s)];
  const at = (element, x = 0.5, y = 0.5) => { const r = element.getClientRects()[0]; return { clientX: r.left + x * r.width, clientY: r.top + y * r.height }; };
  const send = (target, type, place) => target.dispatchEvent(new MouseEvent(type, { bubbles: true, cancelable: true, view: window, movementX: 3, ...place }));
  const pointer = (target, place, types) => { for (const type of types) send(target, type, place); };
  const click = async (what, element, { place, twice, note = {} } = {}) => {
    if (!element) { seen.steps[what] = null; return; }
    element.scrollIntoView({ block: "center", inline: "nearest" });
    await wait(80);
    const where = place ? place(element) : at(element), top = document.elementFromPoint(where.clientX, where.clientY);
    if (!top || !(element.contains(top) || top.contains(element))) seen.covered.push(`${what}: ${top && top.outerHTML.slice(0, 80)}`);
    else pointer(top, where, ["mouseover", "mousemove", "mousedown", "mouseup", "click", ...(twice ? ["mousedown", "mouseup", "click", "dblclick"] : [])]);
    await wait(300);
    seen.steps[what] = { ...note, hint: $("#tip").hidden ? "" : $("#tip").textContent, view: ($("#tabs [aria-current]") || {}).textContent, hash: decodeURIComponent(location.hash), about: $("#about").innerText, on: all("main .on").length, text: $("main").innerText.slice(0, 4000), boxes: all("main .node-box").length, lines: all("main .line").length };
  };
  const open = async (hash) => { location.hash = hash; await wait(350); };
  const named = (selector, text) => all(selector).find((e) => e.textContent.includes(text));
  for (let i = 0; i < 200 && !root.dataset.ready; i++) await wait(50);

  for (const name of all("#tabs a").map((a) => a.textContent)) await click("tab " + name, all("#tabs a").find((a) => a.textContent === name));

  const one = async () => {
    await open("#view=overview");
    await click("circle of the roofline", $("main svg circle"), { note: { tip: $("main svg circle").dataset.tip } });
    await open("#view=overview");
    await click("where advice is", $("main .panel table a"));
    await open("#view=overview");
    await click("cause in a bar", $("main .bar i"));

    await open("#view=kernels");
    const row = all("main tr.pick")[1], name = row.querySelector("a").textContent;
    await click("row of a kernel", row, { place: (e) => at(e.lastChild), note: { name } });
    await click("bundles, beside a kernel", named("#about a", "bundles"));
    await open("#view=kernels");
    await click("name of a kernel", all("main tr.pick")[1].querySelector("a"), { note: { name } });
    const order = () => all("main tr.pick a").map((a) => a.textContent).join();
    await open("#view=kernels");
    const before = order();
    await click("head of a column", named("main th", "MXU"), { note: { before } });
    seen.steps["head of a column"].after = order();

    await open("#kernel=" + name);
    const bundle = all("main .line.pick").find((e) => e.textContent.includes("vmatmul")) || $("main .line.pick"), number = bundle.firstChild.textContent;
    await click("bundle", bundle, { place: (e) => at(e.firstChild), note: { number } });
    await click("source of a bundle", named("#about a", "%"));
    for (const tab of ["LLO", "Plan", "VMEM", "Transfers", "Bundles"]) await click("tab of a kernel: " + tab, all("main nav a").find((a) => a.textContent === tab));
    await click("next kernel", $('main button[title="next kernel"]'), { note: { first: name } });

    await open("#view=graph");
    const call = all("main .node-box.call")[0];
    await click("fusion in the graph", call, { note: { name: call.firstElementChild.nextSibling && call.querySelector("text").textContent } });
    await click("operand of a node", all("#about a").find((a) => a.hash && a.hash.includes("hlo=")));
    await open("#view=graph&graph=final");
    const boxes = all("main .node-box").length;
    await click("fusion, twice", all("main .node-box.call")[0], { twice: true, note: { boxes_before: boxes } });
    await click("close what is open", $('main .tag a[title="close"]'), { note: { boxes_before: all("main .node-box").length } });
    const group = $("main .node-box.group");
    await click("scope, twice", group, { twice: true, note: { boxes_before: all("main .node-box").length, label: group && group.dataset.tip } });
    await click("the model's own graph", named("main nav a", "the model"));

    await open("#view=timeline");
    await click("whole run", named("main button", "whole run"));
    const calls = T.main.calls.rows, longest = [...Array(calls.length / 4).keys()].reduce((a, b) => (calls[4 * b + 2] > calls[4 * a + 2] ? b : a), 0);
    const across = (cycle) => (e) => { const r = e.getBoundingClientRect(); return { clientX: r.left + 92 + (r.width - 102) * cycle / T.main.cycles, clientY: r.top + 38 }; };
    await click("slice of a call", $("main canvas"), { place: across(calls[4 * longest + 1] + calls[4 * longest + 2] / 2), note: { name: T.main.sites[calls[4 * longest]].name } });
    const wide = $("main span.soft.grow").textContent;
    await click("slice of a call, twice", $("main canvas"), { place: across(calls[4 * longest + 1] + calls[4 * longest + 2] / 2), twice: true, note: { wide, name: T.main.sites[calls[4 * longest]].name } });
    const step = (e) => { const r = e.getBoundingClientRect(); return { clientX: r.left + r.width / 2, clientY: r.top + 30 + 50 + 8 }; };
    await click("grid step", $("main canvas"), { place: step });
    seen.steps["grid step"].tip = $("main canvas").dataset.tip;

    await open("#view=memory");
    await click("plot of HBM", $("main .u-over"), { place: (e) => at(e, 0.05) });
    await open("#view=memory");
    await click("buffer", $("main table td.name a"), { note: { name: $("main table td.name a").textContent } });
    await click("place of a buffer in the graph", named("#about a", "graph"));

    await open("#view=costs");
    const line = $("main tr.pick");
    await click("source line", line, { place: (e) => at(e.children[1]), note: { name: line.querySelector("a").textContent } });
    await click("instruction of a line", all("#about p:last-child a").pop());
    await open("#view=costs");
    const node = all("main .node").find((e) => e.textContent.includes("▾")), tree = () => all("main .node").filter((e) => e.offsetParent).length;
    await click("name of a scope", node, { place: (e) => at(e.querySelector(".label"), 0.9), note: { path: node.dataset.tip } });
    await open("#view=costs");
    const many = tree(), shown = all("main .node").find((e) => e.textContent.includes("▾"));
    await click("mark of a scope", shown, { place: (e) => { const r = e.getBoundingClientRect(); return { clientX: r.left + 14, clientY: r.top + r.height / 2 }; }, note: { before: many } });
    seen.steps["mark of a scope"].after = tree();

    await open("#view=passes");
    const other = all("main nav a[href]")[1];
    await click("pass", other, { note: { name: other.firstChild.textContent } });
    const fold = $("main .fold");
    await click("fold of equal lines", fold, { note: { lines_before: all("main .line").length, text_before: fold && fold.textContent } });
    const def = all("main .line span").find((e) => /^\s*(ROOT )?%[\w.]+ =/.test((e.title || "")));
    await click("line of a pass", def, { place: (e) => at(e, 0.3), note: { name: def && def.title.match(/%([\w.\-]+) =/)[1] } });
    await click("all passes", named("main nav a", "show all"));

    await click("theme", $("#theme"));
    await click("help", $("#help"));
    seen.steps.help.open = $("#keys").open;
    await click("help, closed", named("#keys button", "close"));
    seen.steps["help, closed"].open = $("#keys").open;
  };
  const two = async () => {
    await open("#view=slice");
    await click("chip", $("main svg rect"));
    await open("#view=compare");
    await click("kernel of a comparison", all("main table").pop().querySelector("td a"));
    await click("the other document", named("#facts a", "show"));
  };
  try { await (T.mains.length > 1 ? two() : one()); } catch (e) { seen.errors.push(String(e && e.stack || e)); }
  if (root.dataset.error) seen.errors.push(root.dataset.error);
  const out = document.createElement("pre");
  out.id = "seen"; out.textContent = JSON.stringify(seen);
  document.body.append(out);
})();
