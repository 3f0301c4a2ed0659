// SPDX-License-Identifier: GPL-2.0-only
// What a byte costs in each function of the TLS library, over the bytes of a call.
"use strict";
(function (tlstax) {
  const COLOURS = { cipher: "cipher", digest: "digest", asymmetric: "asymmetric", kdf: "kdf_rng", rng: "kdf_rng" };
  const UNITS = ["B", "KiB", "MiB"];

  function sizeText(bytes) {
    const step = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
    return `${+(bytes / 1024 ** step).toPrecision(3)}\u00a0${UNITS[step]}`;
  }

  tlstax.chart("primitives", function ([index], width) {
    const points = tlstax.document.primitives[index].lines.flatMap((line) =>
      line.sizes
        .filter((part) => part.timing.per_byte_ns > 0)
        .map((part) => ({
          name: line.name,
          x: part.mean_bytes,
          y: part.timing.per_byte_ns,
          colour: tlstax.colour("category", COLOURS[line.category] ?? "unknown"),
        })),
    );
    if (!points.length) return null;
    const last = new Map(points.map((point) => [point.name, point]));
    const xs = points.map((point) => point.x);
    const ys = points.map((point) => point.y);
    const ticks = d3.range(4, 25, 2).map((power) => 2 ** power);
    return tlstax.plot({
      width,
      height: 240,
      marginTop: 16,
      marginLeft: 58,
      marginRight: tlstax.isNarrow(width) ? 16 : 150,
      x: { type: "log", domain: [Math.min(...xs) / 1.4, Math.max(...xs) * 1.4] },
      y: { type: "log", domain: [Math.min(...ys) / 1.6, Math.max(...ys) * 1.6] },
      marks: [
        Plot.gridY({ ticks: 4, stroke: "var(--grid)", strokeOpacity: 1 }),
        Plot.axisY({ ticks: 4, tickFormat: (value) => `${tlstax.format.time(value)}/B`, label: null, tickSize: 0 }),
        Plot.axisX(
          ticks.filter((tick) => tick >= Math.min(...xs) / 1.4 && tick <= Math.max(...xs) * 1.4),
          { tickFormat: sizeText, label: null, tickSize: 3 },
        ),
        Plot.line(points, { x: "x", y: "y", z: "name", stroke: "colour", strokeWidth: 2 }),
        Plot.dot(points, { x: "x", y: "y", fill: "colour", stroke: (point) => tlstax.edge(point.colour), r: 4 }),
        Plot.text([...last.values()], {
          x: "x",
          y: "y",
          text: "name",
          textAnchor: tlstax.isNarrow(width) ? "end" : "start",
          dx: tlstax.isNarrow(width) ? -8 : 9,
          dy: tlstax.isNarrow(width) ? -10 : 0,
          fill: "var(--ink)",
        }),
      ],
    });
  });
})((window.tlstax = window.tlstax || {}));
