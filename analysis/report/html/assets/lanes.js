// SPDX-License-Identifier: GPL-2.0-only
// Who waited for whom: each handshake a lane of its own length, its parts one after the other. The
// means of both sides are about the same handshakes, so these have one length.
"use strict";
(function (tlstax) {
  const LANE = 58; // px, with its name above it
  const BAND = 26;

  tlstax.chart("lanes", function ([index], width) {
    const { lanes } = tlstax.document.handshakes[index];
    if (!lanes.length) return null;
    const length = (lane) => Math.max(lane.wall_ns, lane.parts.at(-1)?.end_ns ?? 0) || 1;
    const isMean = (lane) => lane.name.endsWith("_mean");
    const longestMean = Math.max(...lanes.filter(isMean).map(length));
    const rows = lanes.flatMap((lane, at) => {
      const whole = isMean(lane) ? longestMean : length(lane);
      const top = at * LANE + LANE - BAND - 4;
      return lane.parts.map((part) => ({
        x1: part.start_ns / whole,
        x2: part.end_ns / whole,
        y1: top,
        y2: top + BAND,
        colour: tlstax.colour("part", part.name),
        text: tlstax.format.time(part.time_ns),
      }));
    });
    const fits = rows.filter((row) => (row.x2 - row.x1) * width > 8 * row.text.length);
    return tlstax.plot({
      width,
      height: lanes.length * LANE + 8,
      marginTop: 0,
      marginBottom: 8,
      marginLeft: 1,
      marginRight: 1,
      x: { domain: [0, 1], axis: null },
      y: { domain: [0, lanes.length * LANE], reverse: true, axis: null },
      marks: [
        Plot.rect(rows, { x1: "x1", x2: "x2", y1: "y1", y2: "y2", fill: "colour", stroke: (row) => tlstax.edge(row.colour) }),
        Plot.text(fits, { x: (row) => (row.x1 + row.x2) / 2, y: (row) => row.y1 + BAND / 2, text: "text", fill: "var(--on-mark)" }),
        Plot.text(lanes, {
          x: 0,
          y: (_, at) => at * LANE + LANE - BAND - 14,
          text: (lane) => `${tlstax.upper(lane.label)}: ${tlstax.format.time(lane.wall_ns)}`,
          textAnchor: "start",
          fill: "var(--ink)",
          fontSize: 13,
        }),
      ],
    });
  });
})((window.tlstax = window.tlstax || {}));
