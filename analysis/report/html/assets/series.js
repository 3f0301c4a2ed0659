// SPDX-License-Identifier: GPL-2.0-only
// What the host and the server counted, as steps over the recording: one small chart a panel.
"use strict";
(function (tlstax) {
  const HEIGHT = 132;
  const MARGIN = { marginTop: 8, marginBottom: 24, marginLeft: 74, marginRight: 8 };
  const DASHES = ["none", "6,2", "2,2", "8,2,2,2", "1,3"]; // so that colour is not all that tells

  // Both ends of every interval; a hole where nothing is known breaks the line.
  function steps(panel, line, scale, colour) {
    const points = [];
    line.values.forEach((value, at) => {
      const [start, end] = [panel.start_ns[at], panel.end_ns[at]];
      if (value === null || (at > 0 && start > panel.end_ns[at - 1])) points.push({ x: start, y: NaN, colour });
      if (value !== null) points.push({ x: start, y: value / scale, colour }, { x: end, y: value / scale, colour });
    });
    return points;
  }

  tlstax.chart("series", function ([index], width) {
    const { sources } = tlstax.document;
    const panel = sources.panels[index];
    const highest = Math.max(...panel.lines.map((line) => line.highest));
    const { scale, text } = tlstax.format.ticks(panel.unit, highest);
    const top = Math.max(...panel.lines.flatMap((line) => line.values.map((value) => value ?? 0))) / scale;
    const length = Math.max(sources.length_ns, ...panel.end_ns);
    const ticks = Math.max(2, Math.round(width / 110));
    return tlstax.plot({
      ...MARGIN,
      width,
      height: HEIGHT,
      x: { domain: [0, length] },
      y: { domain: [0, top || 1], nice: true },
      marks: [
        Plot.gridY({ ticks: 3, stroke: "var(--grid)", strokeOpacity: 1 }),
        Plot.axisY({ ticks: 3, tickFormat: text, label: null, tickSize: 0 }),
        Plot.axisX({ ticks, tickFormat: tlstax.format.timeTicks(length), label: null, tickSize: 3 }),
        ...panel.lines.map((line, at) =>
          Plot.line(steps(panel, line, scale, tlstax.edge(`var(--series-${at % DASHES.length})`)), {
            x: "x",
            y: "y",
            stroke: "colour",
            strokeWidth: 1.75,
            strokeDasharray: DASHES[at % DASHES.length],
          }),
        ),
      ],
    });
  });
})((window.tlstax = window.tlstax || {}));
