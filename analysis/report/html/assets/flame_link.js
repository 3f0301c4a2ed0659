// SPDX-License-Identifier: GPL-2.0-only
// The address of a flame graph: which graph, its zoomed frame, what is searched for.
"use strict";
(function (tlstax) {
  const LINK = "#flames?";

  function keep(parts) {
    const filled = Object.entries(parts).filter(([, text]) => text);
    history.replaceState(null, "", LINK + new URLSearchParams(filled));
  }

  // What is shown is no graph of this report.
  function forget() {
    history.replaceState(null, "", LINK.slice(0, -1));
  }

  // The parts that the address has; null if it is none of a flame graph.
  function read() {
    const { hash } = location;
    return hash.startsWith(LINK) ? new URLSearchParams(hash.slice(LINK.length)) : null;
  }

  // A frame by its positions among its siblings, from the root on.
  function placeOf(node) {
    return node
      .ancestors()
      .filter((one) => one.parent)
      .map((one) => one.parent.data.children.indexOf(one.data))
      .reverse()
      .join(".");
  }

  // Frames may have been left out since the link was made: then the nearest caller is shown.
  function nodeAt(root, place) {
    let node = root;
    for (const position of place.split(".").filter(Boolean)) {
      const wanted = node.data.children[Number(position)];
      const child = (node.children ?? []).find((one) => one.data === wanted);
      if (!child) break;
      node = child;
    }
    return node;
  }

  tlstax.flameLink = { keep, forget, read, placeOf, nodeAt };
})((window.tlstax = window.tlstax || {}));
