// SPDX-License-Identifier: GPL-2.0-only
// Starts the page.
"use strict";
(function (tlstax) {
  const draw = () => tlstax.drawCharts(document);
  tlstax.paintSwatches(document);
  tlstax.startTheme();
  const flame = tlstax.startFlame();
  tlstax.startTabs((group, index) => {
    if (group.startsWith("flame-")) flame.choose(group, index);
    else draw();
  });
  draw();
  flame.restore();
  window.addEventListener("hashchange", flame.restore);
  let waiting = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      draw();
      flame.resize();
    });
  });
})((window.tlstax = window.tlstax || {}));
