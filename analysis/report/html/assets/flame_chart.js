// SPDX-License-Identifier: GPL-2.0-only
// The look of flame graphs, which d3-flame-graph draws.
"use strict";
(function (tlstax) {
  const CELL = 20; // px, height of a frame
  const NARROWEST = 0.6; // px; narrower frames are not drawn

  // The whole and its phases have no category of their own, unless all in them is of one kind.
  function isFiled(node) {
    const { category } = node.data;
    return Boolean(category) && (category !== "unknown" || node.depth > 1);
  }

  // Rows of frames that are wide enough to be drawn.
  function depthOf(root, width) {
    const least = (NARROWEST * root.value) / width;
    let deepest = 0;
    const waiting = [[root, 0]];
    while (waiting.length) {
      const [node, depth] = waiting.pop();
      if (node.value <= least) continue;
      deepest = Math.max(deepest, depth);
      for (const child of node.children) waiting.push([child, depth + 1]);
    }
    return deepest;
  }

  function chartOf(root, width) {
    return flamegraph()
      .width(width)
      .height((depthOf(root, width) + 1) * CELL)
      .cellHeight(CELL)
      .minFrameSize(NARROWEST)
      .transitionDuration(tlstax.stillness() ? 0 : 220)
      .sort((a, b) => b.data.value - a.data.value)
      .getName((node) => node.data.name)
      .getValue((node) => (node.data ?? node).value)
      .setColorMapper((node) =>
        isFiled(node) ? tlstax.colour("category", node.data.category) : "var(--bar)");
  }

  tlstax.isFiled = isFiled;
  tlstax.flameChart = chartOf;
})((window.tlstax = window.tlstax || {}));
