// SPDX-License-Identifier: GPL-2.0-only
// What the charts that are drawn in the browser share: their size and frame.
"use strict";
(function (tlstax) {
  const drawers = {};

  tlstax.chart = (kind, drawer) => {
    drawers[kind] = drawer;
  };

  // Draws every chart that can be seen; the others are drawn when their panel is shown.
  tlstax.drawCharts = function (root) {
    for (const box of root.querySelectorAll("[data-chart]")) {
      const width = Math.floor(box.clientWidth);
      if (!width || box.dataset.width === String(width)) continue;
      const indices = box.dataset.index.split(" ").map(Number);
      const svg = drawers[box.dataset.chart](indices, width);
      if (svg) box.replaceChildren(svg);
      box.dataset.width = width;
    }
  };

  tlstax.plot = function (options) {
    const svg = Plot.plot({ className: "plot", color: { type: "identity" }, marginTop: 8, marginBottom: 26, ...options });
    svg.setAttribute("aria-hidden", "true"); // the box has the label, the table the numbers
    return svg;
  };
})((window.tlstax = window.tlstax || {}));
