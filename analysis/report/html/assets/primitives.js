// SPDX-License-Identifier: GPL-2.0-only
// What a byte costs in each function of the TLS library, over the bytes of a call.
"use strict";
(function (tlstax) {
  const COLOURS = { cipher: "cipher", digest: "digest", asymmetric: "asymmetric", kdf: "kdf_rng", rng: "kdf_rng" };
  const DASHES = ["none", "7,3", "2,3", "9,3,2,3"]; // functions of one category share its colour
  const HEIGHT = 260;
  const MARGINS = { marginTop: 14, marginBottom: 26, marginLeft: 74 };
  const LABEL_STEP = 15; // px between two names
  const RARE = 0.01; // sizes with less of a function's calls are in the table only

  function linesOf(table) {
    const seen = {};
    return table.lines
      .map((line) => ({
        name: line.name,
        category: line.category,
        sizes: line.sizes.filter(
          (part) => part.timing.per_byte_ns > 0 && part.call_count >= RARE * line.call_count,
        ),
      }))
      .filter((line) => line.sizes.length)
      .map((line) => {
        const number = (seen[line.category] = (seen[line.category] ?? -1) + 1);
        const colour = tlstax.colour("category", COLOURS[line.category] ?? "unknown");
        const points = line.sizes.map((part) => ({ x: part.mean_bytes, y: part.timing.per_byte_ns, colour }));
        return { name: line.name, colour, dash: DASHES[number % DASHES.length], points };
      });
  }

  // Names beside the right edge, each at the height of its line's end, none upon another.
  function names(lines, [low, high]) {
    const plotted = HEIGHT - MARGINS.marginTop - MARGINS.marginBottom;
    const pixel = (y) => (plotted * Math.log(high / y)) / Math.log(high / low);
    const labels = lines.map((line) => ({ name: line.name, y: line.points.at(-1).y }));
    labels.sort((a, b) => b.y - a.y);
    let free = -Infinity;
    for (const label of labels) {
      const at = Math.max(pixel(label.y), free);
      label.dy = at - pixel(label.y);
      free = at + LABEL_STEP;
    }
    return labels;
  }

  tlstax.chart("primitives", function ([index], width) {
    const lines = linesOf(tlstax.document.primitives[index]);
    if (!lines.length) return null;
    const points = lines.flatMap((line) => line.points);
    const xs = d3.extent(points, (point) => point.x);
    const ys = d3.extent(points, (point) => point.y);
    const x = [xs[0] / 1.4, xs[1] * 1.4];
    const y = [ys[0] / 1.6, ys[1] * 1.6];
    const sizes = d3.range(0, 31, 2).map((power) => 2 ** power);
    return tlstax.plot({
      ...MARGINS,
      width,
      height: HEIGHT,
      marginRight: 150,
      x: { type: "log", domain: x },
      y: { type: "log", domain: y },
      marks: [
        Plot.gridY({ ticks: 4, stroke: "var(--grid)", strokeOpacity: 1 }),
        Plot.axisY({
          ticks: 4,
          tickFormat: (value) => (/^[125]/.test(value.toExponential()) ? `${tlstax.format.time(value)}/B` : ""),
          label: null,
          tickSize: 0,
        }),
        Plot.axisX(
          sizes.filter((size) => size >= x[0] && size <= x[1]),
          { tickFormat: tlstax.format.size, label: null, tickSize: 3 },
        ),
        lines.map((line) =>
          Plot.line(line.points, { x: "x", y: "y", stroke: "colour", strokeWidth: 2, strokeDasharray: line.dash }),
        ),
        Plot.dot(points, { x: "x", y: "y", fill: "colour", stroke: (point) => tlstax.edge(point.colour), r: 4 }),
        names(lines, y).map((label) =>
          Plot.text([label], {
            frameAnchor: "right",
            y: "y",
            text: "name",
            textAnchor: "start",
            dx: 8,
            dy: label.dy,
            fill: "var(--ink)",
          }),
        ),
      ],
    });
  });
})((window.tlstax = window.tlstax || {}));
