// SPDX-License-Identifier: GPL-2.0-only
// The ledger as stacked bars: a pair of bars per phase, one per arm, coloured by state.
"use strict";
(function (tlstax) {
  const ARMS = { plaintext: "plain", tls: "TLS", "": "" };

  const LEAST = 0.004; // of the longest phase: shorter ones are in the table only

  function rowsOf(bars) {
    const perOperation = bars.every((bar) => bar.operation_count > 0);
    const phases = [...new Set(tlstax.document.method.phases.map((phase) => phase.name))];
    const rows = bars.flatMap((bar) =>
      bar.segments.map((segment) => ({
        phase: segment.phase,
        arm: bar.arm,
        state: segment.state,
        time: perOperation ? segment.per_operation_ns : segment.time_ns,
        colour: tlstax.colour("state", segment.state),
      })),
    );
    const sums = d3.rollups(rows, (group) => d3.sum(group, (row) => row.time), (row) => row.phase);
    const least = LEAST * Math.max(...sums.map(([, sum]) => sum));
    const shown = new Set(sums.filter(([, sum]) => sum >= least).map(([phase]) => phase));
    return {
      rows: rows.filter((row) => shown.has(row.phase)),
      phases: phases.filter((phase) => shown.has(phase)),
    };
  }

  tlstax.chart("ledger", function (indices, width) {
    const bars = indices.map((index) => tlstax.document.ledgers[index]);
    const { rows, phases } = rowsOf(bars);
    if (!rows.length) return null;
    const arms = bars.map((bar) => bar.arm);
    const keys = phases.flatMap((phase) => arms.map((arm) => `${phase}/${arm}`));
    for (const row of rows) row.key = `${row.phase}/${row.arm}`;
    const sums = d3.rollup(rows, (group) => d3.sum(group, (row) => row.time), (row) => row.key);
    const highest = Math.max(...sums.values());
    const narrow = tlstax.isNarrow(width);
    const bar = 18;
    const gap = narrow ? 30 : 16;
    const top = narrow ? 26 : 8;
    const place = new Map(keys.map((key, at) => {
      const group = Math.floor(at / arms.length);
      return [key, top + group * (arms.length * bar + gap) + (at % arms.length) * bar];
    }));
    const height = top + phases.length * (arms.length * bar + gap) + 28;
    const marks = keys.map((key) => ({ y: place.get(key), arm: ARMS[key.split("/")[1]] ?? "" }));
    const room = width - (narrow ? 42 : 236) - 24;
    const stack = {
      x: "time",
      z: "state",
      order: tlstax.document.method.states.map((state) => state.name),
    };
    const heads = phases.map((phase) => ({
      label: tlstax.upper(tlstax.name(phase)),
      y: place.get(`${phase}/${arms[0]}`) + (narrow ? -11 : (arms.length * bar) / 2),
    }));
    return tlstax.plot({
      width,
      height,
      marginTop: 0,
      marginBottom: 28,
      marginLeft: narrow ? 42 : 236,
      marginRight: 24,
      x: { domain: [0, highest] },
      y: { domain: [0, height - 28], range: [0, height - 28], axis: null, type: "linear" },
      marks: [
        ...tlstax.timeAxis(highest, width),
        Plot.rect(rows, Plot.stackX({
          ...stack,
          y1: (row) => place.get(row.key) + 1,
          y2: (row) => place.get(row.key) + bar - 1,
          fill: "colour",
          stroke: (row) => tlstax.edge(row.colour),
          inset: 0.25,
        })),
        // A segment's own number, where it has the room.
        Plot.text(rows, Plot.stackX({
          ...stack,
          y: (row) => place.get(row.key) + bar / 2,
          text: (row) => ((row.time / highest) * room > 58 ? tlstax.format.time(row.time) : null),
          fill: "var(--on-mark)",
          fontSize: 12,
        })),
        Plot.ruleX([0], { stroke: "var(--soft)" }),
        Plot.text(marks, { x: 0, y: (mark) => mark.y + bar / 2, text: "arm", textAnchor: "end", dx: -6, fill: "var(--soft)" }),
        Plot.text(heads, {
          x: 0,
          y: "y",
          text: "label",
          textAnchor: narrow ? "start" : "end",
          dx: narrow ? -40 : -50,
          fill: "var(--ink)",
        }),
      ],
    });
  });
})((window.tlstax = window.tlstax || {}));
