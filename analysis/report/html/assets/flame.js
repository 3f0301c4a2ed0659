// SPDX-License-Identifier: GPL-2.0-only
// Flame graphs: d3-flame-graph draws and zooms; here are colours, search, legend and keyboard.
"use strict";
(function (tlstax) {
  const CELL = 20; // px, height of a frame
  const NARROWEST = 0.6; // px; narrower frames are not drawn

  const by = (id) => document.getElementById(id);
  const LINK = "#flames?";
  const state = { chart: null, root: null, term: "", category: "", found: "", focused: null };

  function label(node) {
    const total = state.flame.root.value;
    const category = isFiled(node) ? ` (${tlstax.name(node.data.category)})` : "";
    const part = total ? `, ${tlstax.format.share(node.data.value / total)} of the graph` : "";
    const { repaired } = node.data;
    const mended = repaired ? `; callers of ${tlstax.format.time(repaired)} of it are perf\u2019s` : "";
    const inlined = node.data.inlined ? ", inlined" : "";
    return `${node.data.name}${inlined}${category}: ${tlstax.format.time(node.data.value)}${part}${mended}`;
  }

  // The whole and its phases have no category of their own, unless all in them is of one kind.
  function isFiled(node) {
    const { category } = node.data;
    return Boolean(category) && (category !== "unknown" || node.depth > 1);
  }

  const isSearching = () => Boolean(state.term || state.category);

  function matches(node) {
    if (state.category) return isFiled(node) && node.data.category === state.category;
    return Boolean(state.term) && node.data.name.toLowerCase().includes(state.term);
  }

  function summary(results, sum, total) {
    const what = state.category ? tlstax.name(state.category) : `\u201c${state.typed}\u201d`;
    const part = total ? ` (${tlstax.format.share(sum / total)} of the graph)` : "";
    return results.length
      ? `${what}: ${tlstax.format.time(sum)}${part}, in ${results.length === 1 ? "1 frame" : `${tlstax.format.count(results.length)} frames`}`
      : `${what}: no frame matches`;
  }

  function say(text) {
    by("flame-details").textContent = text || state.found || "\u00a0";
  }

  function frames() {
    return d3.select("#flame").selectAll("g.frame");
  }

  function element(node) {
    return frames().filter((other) => other === node).node();
  }

  // After every drawing: one frame can be reached by Tab, the others by arrow keys from it.
  function settle() {
    const drawn = frames();
    const nodes = new Set(drawn.data());
    if (!nodes.has(state.focused)) state.focused = state.zoomed ?? state.root;
    drawn
      .attr("tabindex", (node) => (node === state.focused ? 0 : -1))
      .attr("role", "treeitem")
      .attr("aria-level", (node) => node.depth + 1)
      .attr("aria-label", label)
      .classed("inlined", (node) => Boolean(node.data.inlined))
      .classed("dim", (node) => isSearching() && !node.highlight);
  }

  function focus(node) {
    const target = node && element(node);
    if (!target) return;
    state.focused = node;
    settle();
    target.focus({ preventScroll: false });
    say(label(node));
  }

  function siblings(node) {
    const visible = new Set(frames().data());
    const same = state.root
      .descendants()
      .filter((other) => other.depth === node.depth && visible.has(other) && other.x1 > other.x0);
    return same.sort((a, b) => a.x0 - b.x0);
  }

  function widestChild(node) {
    const children = (node.children ?? []).filter((child) => child.x1 > child.x0 && element(child));
    return children.sort((a, b) => b.value - a.value)[0];
  }

  function zoom(node) {
    state.chart.zoomTo(node);
    focus(node);
  }

  const KEYS = {
    ArrowUp: (node) => focus(widestChild(node)),
    ArrowDown: (node) => focus(node.parent),
    ArrowLeft: (node) => focus(siblings(node)[siblings(node).indexOf(node) - 1]),
    ArrowRight: (node) => focus(siblings(node)[siblings(node).indexOf(node) + 1]),
    Home: () => focus(state.root),
    Enter: zoom,
    " ": zoom,
    Escape: () => zoom(state.root),
  };

  function onKey(event) {
    const action = KEYS[event.key];
    if (!action || !state.focused || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action(state.focused);
  }

  function search() {
    state.found = "";
    if (!state.chart) return;
    if (isSearching()) state.chart.search(state.term || state.category);
    else state.chart.clear();
    settle();
    say("");
    keep();
  }

  function legend() {
    const nodes = state.chart ? state.root.descendants().filter(isFiled) : [];
    const present = new Set(nodes.map((node) => node.data.category));
    const known = tlstax.document.method.categories.map((term) => term.name);
    const items = known.filter((name) => present.has(name)).map((name) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      const swatch = document.createElement("i");
      swatch.className = "swatch";
      tlstax.paint(swatch, tlstax.colour("category", name));
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      button.append(swatch, tlstax.name(name));
      button.addEventListener("click", () => highlight(state.category === name ? "" : name));
      button.dataset.category = name;
      item.append(button);
      return item;
    });
    by("flame-key").replaceChildren(...items);
  }

  function highlight(category) {
    state.category = category;
    state.term = "";
    by("flame-search").value = "";
    for (const button of by("flame-key").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.dataset.category === category));
    }
    search();
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

  function draw() {
    const box = by("flame");
    const width = Math.floor(box.clientWidth);
    if (!width || !state.flame?.root.value) {
      box.textContent = "Nothing was recorded for this graph.";
      by("flame-reset").disabled = true;
      return;
    }
    box.replaceChildren();
    state.chart = flamegraph()
      .width(width)
      .height((depthOf(state.flame.root, width) + 1) * CELL)
      .cellHeight(CELL)
      .minFrameSize(NARROWEST)
      .transitionDuration(tlstax.stillness() ? 0 : 220)
      .sort((a, b) => b.data.value - a.data.value)
      .getName((node) => node.data.name)
      .getValue((node) => (node.data ?? node).value)
      .setLabelHandler(label)
      .setDetailsHandler(say)
      .setColorMapper((node) =>
        isFiled(node) ? tlstax.colour("category", node.data.category) : "var(--bar)")
      .setSearchMatch(matches)
      .setSearchHandler((results, sum, total) => {
        state.found = summary(results, sum, total);
      })
      .onClick((node) => {
        state.zoomed = node;
        state.focused = node;
        settle();
        by("flame-reset").disabled = node === state.root;
        keep();
      });
    const selection = d3.select(box).datum(state.flame.root);
    selection.call(state.chart);
    state.root = selection.datum();
    state.zoomed = state.root;
    state.focused = state.root;
    const svg = selection.select("svg").attr("role", "tree").attr("aria-label", "Frames");
    svg.attr("viewBox", `0 0 ${width} ${state.chart.height()}`); // so that print can scale it
    by("flame-reset").disabled = true;
  }

  const armOf = (flame) => flame.name.slice(0, -flame.kind.length - 1);

  // The tabs choose a workload and a kind by their position among those that occur.
  function choose(group, index) {
    state[group] = index;
    const { flames } = tlstax.document;
    const arm = [...new Set(flames.map(armOf))][state["flame-arm"] ?? 0];
    const kind = [...new Set(flames.map((flame) => flame.kind))][state["flame-kind"] ?? 0];
    state.flame = flames.find((flame) => armOf(flame) === arm && flame.kind === kind);
    show();
    keep();
  }

  // The address of what is shown: which graph, the zoomed frame by its position among its
  // siblings from the root on, and what is searched for.
  function keep() {
    if (!state.isOpen || !state.chart) return;
    const positions = state.zoomed
      .ancestors()
      .filter((node) => node.parent)
      .map((node) => node.parent.data.children.indexOf(node.data))
      .reverse();
    const parts = { graph: state.flame.name, frame: positions.join("."), search: state.typed, category: state.category };
    if (!state.term) delete parts.search;
    const filled = Object.entries(parts).filter(([, text]) => text);
    history.replaceState(null, "", LINK + new URLSearchParams(filled));
  }

  function pick(group, index) {
    const input = document.querySelector(`[data-tabs="${group}"] input[value="${index}"]`);
    input.checked = true;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  }

  // Frames may have been left out since the link was made: then the nearest caller is shown.
  function frameAt(positions) {
    let node = state.root;
    for (const position of positions) {
      const wanted = node.data.children[Number(position)];
      const child = (node.children ?? []).find((one) => one.data === wanted);
      if (!child) break;
      node = child;
    }
    return node;
  }

  function type(text) {
    highlight("");
    by("flame-search").value = text;
    state.typed = text.trim();
    state.term = state.typed.toLowerCase();
    search();
  }

  function restore() {
    if (!location.hash.startsWith(LINK)) return false;
    const link = new URLSearchParams(location.hash.slice(LINK.length));
    const { flames } = tlstax.document;
    const flame = flames.find(({ name }) => name === link.get("graph"));
    if (!flame) {
      say("The link is to a flame graph that is not in this report.");
      return true;
    }
    state.isOpen = false;
    pick("flame-arm", [...new Set(flames.map(armOf))].indexOf(armOf(flame)));
    pick("flame-kind", [...new Set(flames.map((one) => one.kind))].indexOf(flame.kind));
    const node = state.chart && frameAt((link.get("frame") ?? "").split(".").filter(Boolean));
    if (node && node !== state.root) {
      state.chart.zoomTo(node);
      say(label(node));
    }
    if (link.get("search")) type(link.get("search"));
    else if (link.get("category")) highlight(link.get("category"));
    state.isOpen = true;
    return true;
  }

  function show() {
    state.chart = null;
    state.found = "";
    draw();
    legend();
    highlight(state.category);
  }

  tlstax.startFlame = function () {
    if (!tlstax.document.flames.length) return { choose() {}, resize() {}, restore() {} };
    const input = by("flame-search");
    input.closest("label").hidden = false;
    by("flame-reset").hidden = false;
    by("flame").addEventListener("keydown", onKey);
    by("flame").addEventListener("focusin", (event) => {
      const node = d3.select(event.target).datum();
      if (node?.data) say(label(node));
    });
    input.addEventListener("input", () => type(input.value));
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") highlight("");
    });
    by("flame-reset").addEventListener("click", () => zoom(state.root));
    let width = by("flame").clientWidth;
    const resize = () => {
      if (by("flame").clientWidth !== width) {
        state.isOpen = false;
        show();
        restore();
        state.isOpen = true;
      }
      width = by("flame").clientWidth;
    };
    const open = () => {
      if (restore()) by("flames").scrollIntoView();
      state.isOpen = true;
    };
    return { choose, resize, restore: open };
  };
})((window.tlstax = window.tlstax || {}));
