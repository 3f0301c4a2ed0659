// SPDX-License-Identifier: GPL-2.0-only
// Callers and callees of one function of a flame graph: callers above it, callees below.
"use strict";
(function (tlstax) {
  const by = (id) => document.getElementById(id);
  const SIDES = { callers: "sandwich-callers", callees: "sandwich-callees" };

  function blank({ name, category, inlined }) {
    const made = { name, category, value: 0, children: [] };
    return inlined ? { ...made, inlined } : made;
  }

  // Two trees from the outermost calls of a function, so that each stack counts once.
  function grow(root, name) {
    const places = new Map();
    const below = (parent, node) => {
      if (!places.has(parent)) places.set(parent, new Map());
      const known = places.get(parent);
      const key = JSON.stringify([node.name, node.category, Boolean(node.inlined)]);
      if (!known.has(key)) {
        known.set(key, blank(node));
        parent.children.push(known.get(key));
      }
      return known.get(key);
    };
    const merge = (target, source) => {
      const waiting = [[target, source]];
      while (waiting.length) {
        const [into, from] = waiting.pop();
        into.value += from.value;
        for (const child of from.children) waiting.push([below(into, child), child]);
      }
    };
    let trees = null;
    const waiting = root.children.map((child) => [child, []]);
    while (waiting.length) {
      const [node, above] = waiting.pop();
      if (node.name !== name) {
        for (const child of node.children) waiting.push([child, [node, ...above]]);
        continue;
      }
      trees ??= { callers: blank(node), callees: blank(node) };
      merge(trees.callees, node);
      let caller = trees.callers;
      caller.value += node.value;
      for (const frame of above) {
        caller = below(caller, frame);
        caller.value += node.value;
      }
    }
    return trees;
  }

  // Names in parentheses stand for several frames, or for none.
  const isFunction = (name) => !name.startsWith("(");

  function frames() {
    return d3.select("#sandwich").selectAll("g.frame");
  }

  function drawSide(box, tree, isInverted, { choose, say }) {
    box.replaceChildren();
    const width = Math.floor(box.clientWidth);
    if (!width) return;
    const open = (node) => {
      if (node.parent && isFunction(node.data.name)) choose(node.data.name);
    };
    const chart = tlstax.flameChart(tree, width).inverted(isInverted).onClick(open);
    chart.setLabelHandler(tlstax.flameLabel).setDetailsHandler(say);
    const selection = d3.select(box).datum(tree);
    selection.call(chart);
    selection.select("svg").attr("viewBox", `0 0 ${width} ${chart.height()}`);
    const drawn = selection.selectAll("g.frame");
    drawn
      .attr("tabindex", (node) => (node.parent ? -1 : 0))
      .attr("role", "button")
      .attr("aria-label", tlstax.flameLabel)
      .classed("inlined", (node) => Boolean(node.data.inlined));
    box.onkeydown = (event) => {
      const all = drawn.nodes();
      const at = all.indexOf(document.activeElement);
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      if (step) all[(at + step + all.length) % all.length].focus();
      else if (event.key === "Enter" || event.key === " ") open(d3.select(all[at]).datum());
      else return;
      event.preventDefault();
    };
    drawn.on("focus", (event, node) => say(tlstax.flameLabel(node)));
  }

  // Shows a function, or returns false if no frame has its name.
  function open(root, name, handlers) {
    const trees = grow(root, name);
    by("sandwich").hidden = !trees;
    if (!trees) return false;
    by("sandwich-name").textContent = name;
    by("sandwich-time").textContent = tlstax.format.time(trees.callees.value);
    const part = root.value ? `, ${tlstax.format.share(trees.callees.value / root.value)} of the graph` : "";
    by("sandwich-share").textContent = part;
    for (const [side, id] of Object.entries(SIDES)) {
      drawSide(by(id), trees[side], side === "callees", handlers);
    }
    return true;
  }

  tlstax.sandwich = {
    open,
    isFunction,
    focus: () => by(SIDES.callers).querySelector('g.frame[tabindex="0"]')?.focus({ preventScroll: true }),
    close: () => {
      by("sandwich").hidden = true;
    },
    dim: (isDim) => frames().classed("dim", isDim),
  };
})((window.tlstax = window.tlstax || {}));
