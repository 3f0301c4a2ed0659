// SPDX-License-Identifier: GPL-2.0-only
// Latency over time: one cell for each range of latencies in each span that was measured.
"use strict";
(function (tlstax) {
  const PALEST = 0.12; // a single value is seen as well
  const THINNEST = 2; // px: what was measured for an instant only is seen as well
  const MARGINS = { marginLeft: 62, marginRight: 12 };

  tlstax.chart("heatmap", function ([index], width) {
    const { columns, rows, most } = tlstax.document.heatmaps[index];
    const start = columns[0].start_ns;
    const end = columns.at(-1).end_ns;
    const least = ((end - start) * THINNEST) / (width - MARGINS.marginLeft - MARGINS.marginRight);
    const cells = columns.flatMap((column) =>
      column.counts.flatMap((count, at) => (count ? [{ ...rows[at], column, count }] : [])));
    const low = rows[0].low_ns;
    const high = rows.at(-1).high_ns;
    const span = { x1: "start_ns", x2: (column) => Math.max(column.end_ns, column.start_ns + least) };
    return tlstax.plot({
      ...MARGINS,
      width,
      height: Math.max(170, Math.min(300, rows.length * 12 + 40)),
      x: { domain: [start, Math.max(end, columns.at(-1).start_ns + least)] },
      y: { type: "log", domain: [low, high] },
      marks: [
        Plot.rect(columns, { ...span, y1: low, y2: high, fill: "var(--sheet)" }),
        Plot.axisY({ ticks: 5, tickFormat: tlstax.format.time, label: null, tickSize: 3 }),
        Plot.axisX({
          ticks: Math.max(3, Math.round(width / 110)),
          tickFormat: tlstax.format.timeTicks(end),
          label: null,
          tickSize: 3,
        }),
        Plot.rect(cells, {
          x1: (cell) => cell.column.start_ns,
          x2: (cell) => span.x2(cell.column),
          y1: "low_ns",
          y2: "high_ns",
          fill: "var(--ink)",
          fillOpacity: (cell) => PALEST + (1 - PALEST) * Math.sqrt(cell.count / most),
        }),
      ],
    });
  });
})((window.tlstax = window.tlstax || {}));
