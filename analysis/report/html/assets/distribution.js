// SPDX-License-Identifier: GPL-2.0-only
// How long handshakes take.
"use strict";
(function (tlstax) {
  const QUANTILES = [0.5, 0.95, 0.99];

  // Histogram and distribution function share the axis of time, one above the other in one frame.
  tlstax.chart("distribution", function ([index], width) {
    const { buckets, quantiles } = tlstax.document.handshakes[index].distribution;
    if (!buckets.length) return null;
    // Height is density on the axis as it is drawn, so that areas of unequal buckets compare.
    const density = ({ count, low_ns, high_ns }) => count / Math.log(high_ns / Math.max(low_ns, 1));
    const most = Math.max(...buckets.map(density));
    const low = buckets[0].low_ns;
    const high = buckets.at(-1).high_ns;
    // Flat between buckets, straight within one.
    const steps = buckets.flatMap((bucket, at) => [
      { x: bucket.low_ns, y: at ? buckets[at - 1].cumulative : 0 },
      { x: bucket.high_ns, y: bucket.cumulative },
    ]);
    const marked = quantiles.filter((quantile) => QUANTILES.includes(quantile.q));
    return tlstax.plot({
      width,
      height: 250,
      marginTop: 24,
      marginLeft: 40,
      marginRight: 12,
      x: { type: "log", domain: [low, high] },
      y: { domain: [0, 1] },
      marks: [
        Plot.gridY({ ticks: 4, stroke: "var(--grid)", strokeOpacity: 1 }),
        Plot.axisY({ ticks: 4, tickFormat: (value) => `${value * 100} %`, label: null, tickSize: 0 }),
        Plot.axisX({
          ticks: Math.max(3, Math.round(width / 110)),
          tickFormat: tlstax.format.timeTicks(high),
          label: null,
          tickSize: 3,
        }),
        Plot.rect(buckets, {
          x1: "low_ns",
          x2: "high_ns",
          y1: 0,
          y2: (bucket) => density(bucket) / most,
          fill: "var(--bar)",
          fillOpacity: 0.55,
          insetLeft: buckets.length > 60 ? 0 : 0.5,
        }),
        Plot.line(steps, { x: "x", y: "y", stroke: "var(--group-handshake)", strokeWidth: 2 }),
        Plot.ruleX(marked, { x: "value_ns", stroke: "var(--ink)", strokeDasharray: "2,3" }),
        Plot.text(marked, {
          x: "value_ns",
          y: 1,
          dy: -5,
          text: (quantile) => tlstax.format.quantile(quantile.q),
          textAnchor: "middle",
          lineAnchor: "bottom",
          fill: "var(--ink)",
        }),
        Plot.ruleY([0], { stroke: "var(--soft)" }),
      ],
    });
  });
})((window.tlstax = window.tlstax || {}));
