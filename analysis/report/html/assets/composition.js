// SPDX-License-Identifier: GPL-2.0-only
// What the CPU did inside one phase: a bar per category with its 95 % interval.
"use strict";
(function (tlstax) {
  tlstax.chart("composition", function ([index, phaseIndex], width) {
    const phase = tlstax.document.compositions[index].phases[phaseIndex];
    const rows = phase.shares.map((share) => ({
      key: share.category,
      label: tlstax.upper(tlstax.name(share.category)),
      value: share.share,
      // Too few samples make no share: the chart shows how many there are instead.
      low: phase.enough ? share.low : null,
      high: phase.enough ? share.high : null,
      text: phase.enough ? tlstax.format.share(share.share) : tlstax.format.count(share.sample_count),
      colour: tlstax.colour("category", share.category),
    }));
    if (!rows.length) return null;
    const right = (row) => Math.max(row.value, row.high ?? row.value);
    return tlstax.plot({
      ...tlstax.barRoom(rows, 600, 168),
      width,
      height: rows.length * 24 + 14,
      marginTop: 4,
      marginBottom: 10,
      marginRight: 58,
      x: { domain: [0, Math.max(...rows.map(right))], axis: null },
      marks: [
        Plot.barX(rows, {
          y: "key",
          x: "value",
          fill: "colour",
          fillOpacity: phase.enough ? 1 : 0.4,
          stroke: (row) => tlstax.edge(row.colour),
        }),
        Plot.ruleY(rows.filter((row) => row.low !== null), {
          y: "key",
          x1: "low",
          x2: "high",
          stroke: "var(--ink)",
          strokeWidth: 1.25,
          marker: "tick",
        }),
        Plot.ruleX([0], { stroke: "var(--soft)" }),
        Plot.text(rows, { y: "key", x: right, text: "text", textAnchor: "start", dx: 7, fill: "var(--ink)" }),
        tlstax.barNames(rows, 600),
      ],
    });
  });
})((window.tlstax = window.tlstax || {}));
