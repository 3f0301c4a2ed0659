// SPDX-License-Identifier: GPL-2.0-only
// One operation as two lanes, client above server, coloured by what the thread was doing.
"use strict";
(function (tlstax) {
  const STATES = { cpu: "on_cpu", runnable: "runnable", wait: "blocked_other", peer: "blocked_network" };
  const LANES = ["client", "server"];

  tlstax.chart("bothsides", function (indices, width) {
    const item = tlstax.document.end_to_end[indices[0]];
    const rows = item.parts
      .filter((part) => LANES.includes(part.lane))
      .map((part) => ({
        lane: part.lane,
        start: part.start_ns,
        end: part.end_ns,
        time: part.cost.value_ns,
        label: part.label.replace(": CPU", ""),
        colour: tlstax.colour("state", STATES[part.kind]),
      }));
    if (!rows.length) return null;
    const narrow = tlstax.isNarrow(width);
    const left = narrow ? 56 : 96;
    const bar = 34;
    const gap = 14;
    const place = new Map(LANES.map((lane, at) => [lane, 8 + at * (bar + gap)]));
    const height = 8 + LANES.length * (bar + gap) + 28;
    const highest = Math.max(...rows.map((row) => row.end));
    const room = width - left - 24;
    const fits = (row, text) => ((row.end - row.start) / highest) * room > 7 * text.length + 8;
    return tlstax.plot({
      width,
      height,
      marginTop: 0,
      marginBottom: 28,
      marginLeft: left,
      marginRight: 24,
      x: { domain: [0, highest] },
      y: { domain: [0, height - 28], range: [0, height - 28], axis: null, type: "linear" },
      marks: [
        ...tlstax.timeAxis(highest, width),
        Plot.rect(rows, {
          x1: "start",
          x2: "end",
          y1: (row) => place.get(row.lane),
          y2: (row) => place.get(row.lane) + bar,
          fill: "colour",
          stroke: (row) => tlstax.edge(row.colour),
          inset: 0.25,
        }),
        Plot.text(rows, {
          x: (row) => (row.start + row.end) / 2,
          y: (row) => place.get(row.lane) + bar / 2,
          text: (row) => {
            const time = tlstax.format.time(row.time);
            const whole = `${row.label} ${time}`;
            if (fits(row, whole)) return whole;
            return fits(row, time) ? time : null;
          },
          fill: "var(--on-mark)",
          fontSize: 12,
        }),
        Plot.ruleX([0], { stroke: "var(--soft)" }),
        Plot.text(LANES, {
          x: 0,
          y: (lane) => place.get(lane) + bar / 2,
          text: (lane) => tlstax.upper(lane),
          textAnchor: "end",
          dx: -8,
          fill: "var(--ink)",
          fontSize: 13,
        }),
      ],
    });
  });
})((window.tlstax = window.tlstax || {}));
