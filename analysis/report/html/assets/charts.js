// SPDX-License-Identifier: GPL-2.0-only
// What all charts share: size, fonts, axes, and horizontal bars with their names.
"use strict";
(function (tlstax) {
  const NARROW = 560; // px; below it a bar's name stands above the bar
  const HALO = { stroke: "var(--paper)", strokeWidth: 4, paintOrder: "stroke" }; // where lines pass
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

  tlstax.isNarrow = (width) => width < NARROW;

  tlstax.plot = function (options) {
    const svg = Plot.plot({ className: "plot", color: { type: "identity" }, marginTop: 8, marginBottom: 26, ...options });
    svg.setAttribute("aria-hidden", "true"); // the box has the label, the table the numbers
    return svg;
  };

  tlstax.timeAxis = function (highestNs, width) {
    const ticks = Math.max(3, Math.round(width / 150));
    const tickFormat = tlstax.format.timeTicks(highestNs);
    return [
      Plot.gridX({ ticks, stroke: "var(--grid)", strokeOpacity: 1 }),
      Plot.axisX({ ticks, tickFormat, label: null, tickSize: 0 }),
    ];
  };

  // The names of horizontal bars: beside them, or above them where the page is narrow.
  tlstax.barNames = function (rows, width) {
    const narrow = tlstax.isNarrow(width);
    const options = { y: "key", text: "label", fill: "var(--ink)", fontSize: 13 };
    if (narrow) {
      return Plot.text(rows, { ...options, x: 0, frameAnchor: "left", textAnchor: "start", dy: -19, dx: 4, ...HALO });
    }
    return Plot.text(rows, { ...options, frameAnchor: "left", textAnchor: "end", dx: -10 });
  };

  tlstax.barRoom = function (rows, width, nameWidth) {
    const narrow = tlstax.isNarrow(width);
    const step = narrow ? 46 : 28;
    return {
      width,
      height: rows.length * step + 40,
      marginLeft: narrow ? 1 : nameWidth,
      y: {
        domain: rows.map((row) => row.key),
        axis: null,
        paddingInner: narrow ? 0.62 : 0.3,
        paddingOuter: narrow ? 0.6 : 0.15,
      },
    };
  };
})((window.tlstax = window.tlstax || {}));
