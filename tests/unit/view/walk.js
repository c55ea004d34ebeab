/* Put into a page by `test_browser.py`: goes through it as a reader does and leaves what it saw in the document. */
(async () => {
  const seen = { views: {}, links: {}, errors: [] }, wait = (ms) => new Promise((done) => setTimeout(done, ms));
  addEventListener("error", (e) => seen.errors.push(String(e.message)));
  addEventListener("unhandledrejection", (e) => seen.errors.push(String(e.reason)));
  const root = document.documentElement, $ = (s) => document.querySelector(s), all = (s) => [...document.querySelectorAll(s)];
  const look = () => ({ view: ($("#tabs [aria-current]") || {}).textContent, text: $("main").innerText, about: $("#about").innerText, on: all("main .on").length, current: ($("main nav [aria-current]") || {}).textContent, inside: inside($("main .node-box.on"), $("main svg")), selected: T.state.site, plots: all("main .plot").map((p) => [p.clientWidth, p.firstChild ? p.firstChild.offsetWidth : 0]) });
  const inside = (part, whole) => { if (!part || !whole) return null; const a = part.getBoundingClientRect(), b = whole.getBoundingClientRect(); return a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom; };
  const press = async (key, where = document.body) => { where.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); await wait(150); };
  for (let i = 0; i < 200 && !root.dataset.ready; i++) await wait(50);
  seen.ready = +root.dataset.ready;
  for (const name of all("#tabs a").map((a) => a.textContent)) {
    all("#tabs a").find((a) => a.textContent === name).click();
    await wait(250);
    seen.views[name] = { ...look(), wide: ["main", "header", "body"].some((s) => $(s).scrollWidth > $(s).clientWidth + 1), tallest: Math.max(0, ...all("main tr").map((r) => r.offsetHeight)), drawn: $("main").querySelectorAll("tr, svg, canvas, .line, .card, .node").length };
  }
  for (const hash of window.WALK) { location.hash = hash; await wait(300); seen.links[hash] = look(); }
  const box = $("#search");
  await press("/");
  box.value = "fusion"; box.dispatchEvent(new Event("input")); await wait(200);
  seen.hits = all("#found a").map((a) => a.textContent);
  await press("Enter", box);
  seen.found = location.hash;
  location.hash = "#view=kernels"; await wait(200);
  await press("j");
  seen.row = look();
  await press("Enter");
  seen.opened = look();
  const before = getComputedStyle(document.body).backgroundColor;
  await press("t");
  seen.themes = [before, getComputedStyle(document.body).backgroundColor];
  if (root.dataset.error) seen.errors.push(root.dataset.error);
  const out = document.createElement("pre");
  out.id = "seen"; out.textContent = JSON.stringify(seen);
  document.body.append(out);
})();
