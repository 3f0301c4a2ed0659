// SPDX-License-Identifier: GPL-2.0-only
// Zoom, search and keyboard of a flame graph that stands alone.
"use strict";
(function () {
  const MARGIN = 10; // user units left and right
  const LETTER = 6.6; // width of a letter, as in svg.py
  const group = document.getElementById("frames");
  const found = document.getElementById("found");
  const full = Number(group.dataset.width);
  const frames = [...group.querySelectorAll(".frame")].map((element) => ({
    element,
    rect: element.querySelector("rect"),
    text: element.querySelector("text"),
    x: Number(element.dataset.x),
    width: Number(element.dataset.w),
    depth: Number(element.dataset.depth),
    name: element.dataset.name,
  }));
  const root = frames[0];
  const by = new Map(frames.map((frame) => [frame.element, frame]));
  const EPSILON = 0.002; // positions are rounded to 0.001

  function fit(name, width) {
    const letters = Math.floor((width - 6) / LETTER);
    if (letters < 3) return "";
    return name.length <= letters ? name : `${name.slice(0, letters - 1)}\u2026`;
  }

  // Callers of a function have depths below 0: each side is zoomed by itself.
  function zoom(target) {
    const end = target.x + target.width;
    const level = Math.abs(target.depth);
    for (const frame of frames) {
      const isSide = frame.depth * target.depth >= 0;
      const isInside = isSide && frame.x >= target.x - EPSILON && frame.x + frame.width <= end + EPSILON;
      const isCaller =
        isSide &&
        Math.abs(frame.depth) < level &&
        frame.x <= target.x + EPSILON &&
        frame.x + frame.width >= end - EPSILON;
      const isShown = isCaller || (isInside && Math.abs(frame.depth) >= level);
      frame.element.classList.toggle("out", !isShown);
      frame.element.classList.toggle("caller", isCaller);
      if (!isShown) continue;
      const x = MARGIN + (isCaller ? 0 : ((frame.x - target.x) / target.width) * full);
      const width = isCaller ? full : (frame.width / target.width) * full;
      frame.rect.setAttribute("x", x);
      frame.rect.setAttribute("width", width);
      frame.text.setAttribute("x", x + 3);
      frame.text.textContent = fit(frame.name, width);
    }
    focus(target);
  }

  function focus(frame) {
    for (const other of frames) other.element.setAttribute("tabindex", other === frame ? 0 : -1);
    frame.element.focus({ preventScroll: true });
  }

  // The share counts a stack once, however often the word occurs in it.
  function covered(hits) {
    let sum = 0;
    let end = -1;
    for (const frame of [...hits].sort((a, b) => a.x - b.x || b.width - a.width)) {
      const from = Math.max(frame.x, end);
      const to = frame.x + frame.width;
      if (to > from) sum += to - from;
      end = Math.max(end, to);
    }
    return sum;
  }

  function search(term) {
    const wanted = term.toLowerCase();
    const hits = frames.filter((frame) => frame.name.toLowerCase().includes(wanted));
    for (const frame of frames) frame.element.classList.toggle("hit", Boolean(wanted) && hits.includes(frame));
    group.classList.toggle("searching", Boolean(wanted));
    // Both sides hold the same stacks in different order.
    const most = Math.max(
      covered(hits.filter((frame) => frame.depth >= 0)),
      covered(hits.filter((frame) => frame.depth <= 0)),
    );
    found.textContent = wanted ? `${term}: ${tlstax.format.share(most / root.width)} of the graph` : "";
  }

  group.addEventListener("click", (event) => {
    const element = event.target.closest(".frame");
    if (element) zoom(by.get(element));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      search("");
      zoom(root);
    } else if (event.key === "/") {
      event.preventDefault();
      search(window.prompt("Search for a part of a name") ?? "");
    } else if (event.key === "Enter" && by.has(document.activeElement)) {
      zoom(by.get(document.activeElement));
    }
  });
  if (root) root.element.setAttribute("tabindex", 0);
})();
