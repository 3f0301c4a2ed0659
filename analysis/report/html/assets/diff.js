// SPDX-License-Identifier: GPL-2.0-only
// Differential flame graphs: as wide as before, as after, or as the larger of the two.
"use strict";
(function () {
  const ROW = 18; // px
  const LETTER = 6.6; // width of a letter
  const NARROWEST = 0.4; // px
  const MORE = [[236, 226, 224], [200, 40, 30]];
  const LESS = [[222, 228, 236], [30, 90, 190]];
  const NOISE = "#c9ced6";
  const SVG = "http://www.w3.org/2000/svg";
  const data = JSON.parse(document.getElementById("flames").textContent);

  const { time } = window.tlstax.format;

  // [name, before, after, is noise, children], with the larger of the two as a width of its own.
  function measure(node, depth) {
    const children = node[4].map((child) => measure(child, depth + 1));
    const inner = children.reduce((sum, child) => sum + child.both, 0);
    const both = Math.max(node[1], node[2], inner);
    return { name: node[0], before: node[1], after: node[2], noise: node[3], both, depth, children };
  }

  function colour(node) {
    if (node.noise || !node.both) return NOISE;
    const change = node.after - node.before;
    const [faint, strong] = change > 0 ? MORE : LESS;
    const part = Math.min(Math.abs(change) / Math.max(node.before, node.after), 1);
    return `rgb(${faint.map((value, at) => Math.round(value + (strong[at] - value) * part)).join(",")})`;
  }

  function describe(node, per) {
    const each = per ? ` per ${per}` : "";
    const change = node.after - node.before;
    const verdict = node.noise ? "; no more than chance" : node.after === 0 ? "; vanished" : node.before === 0 ? "; new" : "";
    return `${node.name}: ${time(node.before)} → ${time(node.after)}${each}, ${change > 0 ? "+" : ""}${time(change)}${verdict}`;
  }

  function fit(name, width) {
    const letters = Math.floor((width - 6) / LETTER);
    if (letters < 3) return "";
    return name.length <= letters ? name : `${name.slice(0, letters - 1)}…`;
  }

  function start(box) {
    const graph = data[Number(box.dataset.flame)];
    const root = measure(graph.root, 0);
    const svg = box.querySelector("svg");
    const words = box.querySelector(".flame-words");
    const search = box.querySelector("input[type=search]");
    let zoomed = root;
    let mode = "both";

    function blocks() {
      const found = [];
      const path = [];
      const find = (node) => {
        path.push(node);
        if (node === zoomed || node.children.some(find)) return true;
        path.pop();
        return false;
      };
      find(root);
      const width = Math.max(100, svg.parentElement.clientWidth);
      const scale = zoomed[mode] > 0 ? width / zoomed[mode] : 0;
      path.slice(0, -1).forEach((node) => found.push({ node, x: 0, width, caller: true }));
      const grow = (node, x) => {
        const own = node[mode] * scale;
        if (own < NARROWEST) return;
        found.push({ node, x, width: own, caller: false });
        let at = x;
        for (const child of [...node.children].sort((a, b) => b[mode] - a[mode])) {
          grow(child, at);
          at += child[mode] * scale;
        }
      };
      grow(zoomed, 0);
      return { found, width };
    }

    function draw(focus) {
      const { found, width } = blocks();
      const height = (1 + Math.max(0, ...found.map((block) => block.node.depth))) * ROW;
      svg.setAttribute("width", width);
      svg.setAttribute("height", height);
      const wanted = search.value.toLowerCase();
      svg.classList.toggle("searching", Boolean(wanted));
      svg.replaceChildren(
        ...found.map((block) => {
          const group = document.createElementNS(SVG, "g");
          const rect = document.createElementNS(SVG, "rect");
          const title = document.createElementNS(SVG, "title");
          const text = document.createElementNS(SVG, "text");
          const y = height - ROW * (block.node.depth + 1);
          title.textContent = describe(block.node, graph.per);
          for (const [name, value] of Object.entries({ x: block.x, y, width: block.width, height: ROW - 1, fill: colour(block.node) }))
            rect.setAttribute(name, value);
          text.setAttribute("x", block.x + 3);
          text.setAttribute("y", y + 12.5);
          text.textContent = fit(block.node.name, block.width);
          group.setAttribute("tabindex", block.node === zoomed ? 0 : -1);
          group.classList.toggle("caller", block.caller);
          group.classList.toggle("hit", Boolean(wanted) && block.node.name.toLowerCase().includes(wanted));
          group.append(title, rect, text);
          group.addEventListener("click", () => go(block.node));
          group.addEventListener("mouseenter", () => (words.textContent = title.textContent));
          group.addEventListener("focus", () => (words.textContent = title.textContent));
          group.addEventListener("keydown", (event) => keys(event, block.node));
          if (focus && block.node === zoomed) queueMicrotask(() => group.focus({ preventScroll: true }));
          return group;
        }),
      );
    }

    function go(node) {
      zoomed = node;
      draw(true);
    }

    // Up is towards the leaves, as the picture is drawn.
    function keys(event, node) {
      const parents = new Map();
      const walk = (one) => one.children.forEach((child) => (parents.set(child, one), walk(child)));
      walk(root);
      const parent = parents.get(node);
      const siblings = parent ? parent.children : [node];
      const at = siblings.indexOf(node);
      const next = {
        ArrowUp: node.children[0],
        ArrowDown: parent,
        ArrowRight: siblings[at + 1],
        ArrowLeft: siblings[at - 1],
        Escape: root,
      }[event.key];
      if (next) {
        event.preventDefault();
        go(next);
      }
    }

    for (const input of box.querySelectorAll("input[type=radio]"))
      input.addEventListener("change", () => {
        mode = input.value;
        draw(false);
      });
    search.addEventListener("input", () => draw(false));
    let waiting = 0;
    window.addEventListener("resize", () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(() => draw(false));
    });
    box.hidden = false;
    draw(false);
  }

  document.querySelectorAll("[data-flame]").forEach(start);
})();
