"use strict";
/* A long list of lines of one height, of which only what is seen is drawn. */
T.list = (count, height, line, { className = "", head, tall = "60vh" } = {}) => {
  const space = h("div", { class: "space" });
  const holder = h("div", { class: `scroll frame mono ${className}`, style: { height: tall }, tabindex: "0" }, head || "", space);
  const made = new Map();
  const draw = () => {
    const items = virtual.getVirtualItems(), wanted = new Set();
    space.style.height = virtual.getTotalSize() + "px";
    for (const item of items) {
      wanted.add(item.index);
      if (!made.has(item.index)) { const node = line(item.index); node.classList.add("line"); node.style.top = item.start + "px"; made.set(item.index, node); space.append(node); }
    }
    for (const [index, node] of made) if (!wanted.has(index)) { node.remove(); made.delete(index); }
  };
  const options = { count, getScrollElement: () => holder, estimateSize: () => height, overscan: 20, scrollToFn: VirtualCore.elementScroll, observeElementRect: VirtualCore.observeElementRect, observeElementOffset: VirtualCore.observeElementOffset, onChange: draw };
  const virtual = new VirtualCore.Virtualizer(options);
  virtual._didMount();
  T.shown(() => { virtual._willUpdate(); draw(); if (holder.wanted >= 0) holder.show(holder.wanted, holder.above); });
  holder.wanted = -1;
  holder.show = (index, above = 1 / 3) => { holder.wanted = index; holder.above = above; if (holder.isConnected) { holder.scrollTop = Math.max(0, index * height - holder.clientHeight * above); } };
  holder.redraw = (n) => { if (n !== undefined) virtual.setOptions({ ...options, count: n }); for (const node of made.values()) node.remove(); made.clear(); virtual._willUpdate(); draw(); };
  return holder;
};
T.textList = (lines, { onpick, on, tall } = {}) => T.list(lines.length, 18, (i) => h("div", { class: `${onpick ? "pick" : ""} ${on === i ? "on" : ""}`, onclick: onpick && (() => onpick(i)) }, h("span", { class: "gutter" }, i + 1), lines[i]), { className: "text", tall });
