// SPDX-License-Identifier: GPL-2.0-only
// The waterfall from the plaintext arm to the TLS arm, one step a row.
"use strict";
(function (tlstax) {
  const LEAST = 0.004; // of the axis, about three pixels: narrower steps are in the table only

  const PALE = 0.4;

  // Samples that a share needs.
  function minimum() {
    return Math.max(0, ...tlstax.document.compositions.map((item) => item.minimum_sample_count));
  }

  function canBeSeen(comparison) {
    const ends = comparison.cells.flatMap((cell) => [cell.start_ns, cell.end_ns]);
    const least = LEAST * Math.max(...ends);
    return ({ name, difference }) =>
      name === "unexplained" ||
      Math.abs(difference.value_ns) >= least ||
      (difference.high_ns ?? 0) - (difference.low_ns ?? 0) >= 4 * least;
  }

  function rowsOf(comparison) {
    const end = (arm, key) => ({
      key,
      label: arm === "tls" ? "TLS" : "Plaintext",
      from: 0,
      to: comparison.latency[arm].value_ns,
      low: comparison.latency[arm].low_ns,
      high: comparison.latency[arm].high_ns,
      text: tlstax.format.time(comparison.latency[arm].value_ns),
      colour: "var(--bar)",
      seen: true,
    });
    const steps = comparison.cells.filter(canBeSeen(comparison)).map((cell, index) => ({
      key: String(index),
      label: tlstax.upper(cell.label),
      from: cell.start_ns,
      to: cell.end_ns,
      low: cell.difference.low_ns === null ? null : cell.start_ns + cell.difference.low_ns,
      high: cell.difference.high_ns === null ? null : cell.start_ns + cell.difference.high_ns,
      text: tlstax.format.timeChange(cell.difference.value_ns),
      colour: tlstax.colour("group", cell.group),
      seen: cell.verdict !== "no difference seen",
      pale: cell.sample_count !== null && cell.sample_count < minimum(),
    }));
    const rows = [...steps];
    if (comparison.latency.plaintext) rows.unshift(end("plaintext", "plaintext"));
    if (comparison.latency.tls) rows.push(end("tls", "tls"));
    return rows;
  }

  tlstax.chart("waterfall", function ([index], width) {
    const rows = rowsOf(tlstax.document.comparisons[index]);
    if (!rows.length) return null;
    const edges = rows.flatMap((row) => [row.from, row.to, row.low ?? row.to, row.high ?? row.to]);
    const highest = Math.max(...edges);
    const right = (row) => Math.max(row.from, row.to, row.high ?? row.to);
    const joints = rows.slice(0, -1).map((row, at) => ({ x: row.to, y1: row.key, y2: rows[at + 1].key }));
    return tlstax.plot({
      ...tlstax.barRoom(rows, width, 260),
      marginRight: 84,
      x: { domain: [Math.min(0, ...edges), highest], insetLeft: 1 },
      marks: [
        ...tlstax.timeAxis(highest, width),
        Plot.ruleX([0], { stroke: "var(--soft)" }),
        Plot.link(joints, { x1: "x", x2: "x", y1: "y1", y2: "y2", stroke: "var(--soft)", strokeDasharray: "2,3" }),
        Plot.barX(rows, {
          y: "key",
          x1: "from",
          x2: "to",
          fill: "colour",
          stroke: (row) => tlstax.edge(row.colour),
          fillOpacity: (row) => (row.seen ? (row.pale ? PALE : 1) : 0),
          inset: 0.5,
        }),
        Plot.ruleY(rows.filter((row) => row.low !== null), {
          y: "key",
          x1: "low",
          x2: "high",
          stroke: "var(--ink)",
          strokeWidth: 1.5,
          marker: "tick",
        }),
        Plot.text(rows, { y: "key", x: right, text: "text", textAnchor: "start", dx: 8, fill: "var(--ink)" }),
        tlstax.barNames(rows, width),
      ],
    });
  });
})((window.tlstax = window.tlstax || {}));
