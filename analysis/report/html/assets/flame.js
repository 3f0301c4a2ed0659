// SPDX-License-Identifier: GPL-2.0-only
// Flame graphs: d3-flame-graph draws and zooms; here are search, legend and keyboard.
"use strict";
(function (tlstax) {
  const { isFiled, flameChart, flameLink: link } = tlstax;
  const by = (id) => document.getElementById(id);
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

  const isSearching = () => Boolean(state.term || state.category);

  function matches(node) {
    if (state.category) return isFiled(node) && node.data.category === state.category;
    return Boolean(state.term) && node.data.name.toLowerCase().includes(state.term);
  }

  function summary(results, sum) {
    const total = state.flame.root.value; // not what is zoomed
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

  function whole() {
    if (state.sandwiched) sandwich("");
    zoom(state.root);
  }

  const KEYS = {
    ArrowUp: (node) => focus(state.isIcicle ? node.parent : widestChild(node)),
    ArrowDown: (node) => focus(state.isIcicle ? widestChild(node) : node.parent),
    ArrowLeft: (node) => focus(siblings(node)[siblings(node).indexOf(node) - 1]),
    ArrowRight: (node) => focus(siblings(node)[siblings(node).indexOf(node) + 1]),
    Home: () => focus(state.root),
    Enter: zoom,
    " ": zoom,
    Escape: whole,
    c: (node) => node.depth > 1 && sandwich(node.data.name),
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
    tlstax.sandwich.dim((node) => isSearching() && !matches(node));
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

  function draw() {
    const box = by("flame");
    const width = Math.floor(box.clientWidth);
    if (!width || !state.flame?.root.value) {
      box.textContent = "Nothing was recorded for this graph.";
      by("flame-reset").disabled = by("flame-sandwich").disabled = true;
      return;
    }
    box.replaceChildren();
    state.chart = flameChart(state.flame.root, width)
      .inverted(Boolean(state.isIcicle))
      .setLabelHandler(label)
      .setDetailsHandler(say)
      .setSearchMatch(matches)
      .setSearchHandler((results, sum) => {
        state.found = summary(results, sum);
      })
      .onClick((node) => {
        state.zoomed = node;
        state.focused = node;
        settle();
        mark();
        keep();
      });
    const selection = d3.select(box).datum(state.flame.root);
    selection.call(state.chart);
    state.root = selection.datum();
    state.zoomed = state.root;
    state.focused = state.root;
    const svg = selection.select("svg").attr("role", "tree").attr("aria-label", "Frames");
    svg.attr("viewBox", `0 0 ${width} ${state.chart.height()}`); // so that print can scale it
    mark();
  }

  // The buttons: what they do depends on the zoomed frame. The first frames are phases.
  function mark() {
    const { zoomed, root, sandwiched } = state;
    by("flame-reset").disabled = zoomed === root && !sandwiched;
    const isFunction = zoomed.depth > 1 && tlstax.sandwich.isFunction(zoomed.data.name);
    by("flame-sandwich").disabled = Boolean(sandwiched) || !isFunction;
  }

  // Callers and callees of a function instead of the graph; '' shows the graph again.
  function sandwich(name) {
    const handlers = { choose: sandwich, say };
    by("flame").hidden = Boolean(name) && tlstax.sandwich.open(state.flame.root, name, handlers);
    state.sandwiched = by("flame").hidden ? name : "";
    if (!state.sandwiched) tlstax.sandwich.close();
    mark();
    search();
    if (state.sandwiched && state.isOpen) tlstax.sandwich.focus();
    say(name && !state.sandwiched ? `No frame of this graph has the name ${name}.` : "");
  }

  const armOf = (flame) => flame.name.slice(0, -flame.kind.length - 1);

  // The tabs choose a workload and a kind by their position among those that occur.
  function choose(group, index) {
    if (group === "flame-view") return turn(index === 1);
    state[group] = index;
    const { flames } = tlstax.document;
    const arm = [...new Set(flames.map(armOf))][state["flame-arm"] ?? 0];
    const kind = [...new Set(flames.map((flame) => flame.kind))][state["flame-kind"] ?? 0];
    state.flame = flames.find((flame) => armOf(flame) === arm && flame.kind === kind);
    show();
    keep();
  }

  // An icicle has callees below their callers. What is zoomed and searched for stays.
  function turn(isIcicle) {
    if (Boolean(state.isIcicle) === isIcicle) return;
    state.isIcicle = isIcicle;
    if (!state.isOpen) return;
    keep();
    redraw();
  }

  // The address of what is shown: which graph, the zoomed frame, and what is searched for.
  function keep() {
    if (!state.isOpen) return;
    if (!state.flame) return link.forget();
    link.keep({
      graph: state.flame.name,
      view: state.isIcicle ? "icicle" : "",
      frame: state.chart ? link.placeOf(state.zoomed) : "", // else nothing was recorded for it
      function: state.sandwiched,
      search: state.term ? state.typed : "",
      category: state.category,
    });
  }

  function pick(group, index) {
    const input = document.querySelector(`[data-tabs="${group}"] input[value="${index}"]`);
    input.checked = true;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  }

  function type(text) {
    highlight("");
    by("flame-search").value = text;
    state.typed = text.trim();
    state.term = state.typed.toLowerCase();
    search();
  }

  function restore() {
    const wanted = link.read();
    if (!wanted) return false;
    const { flames } = tlstax.document;
    const flame = flames.find(({ name }) => name === wanted.get("graph"));
    if (!flame) {
      say("The link is to a flame graph that is not in this report.");
      return true;
    }
    state.isOpen = false;
    pick("flame-view", wanted.get("view") === "icicle" ? 1 : 0);
    pick("flame-arm", [...new Set(flames.map(armOf))].indexOf(armOf(flame)));
    pick("flame-kind", [...new Set(flames.map((one) => one.kind))].indexOf(flame.kind));
    const node = state.chart && link.nodeAt(state.root, wanted.get("frame") ?? "");
    if (node && node !== state.root) {
      state.chart.zoomTo(node);
      say(label(node));
    }
    const name = wanted.get("function") ?? "";
    if (state.chart && (name || state.sandwiched)) sandwich(name);
    if (wanted.get("search")) type(wanted.get("search"));
    else if (wanted.get("category")) highlight(wanted.get("category"));
    state.isOpen = true;
    return true;
  }

  function show() {
    const name = state.sandwiched;
    state.chart = null;
    state.found = state.sandwiched = "";
    tlstax.sandwich.close();
    by("flame").hidden = false;
    draw();
    legend();
    highlight(state.category);
    if (name && state.chart) sandwich(name);
  }

  function redraw() {
    state.isOpen = false;
    show();
    restore();
    state.isOpen = true;
  }

  tlstax.flameLabel = label;
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
    by("flame-sandwich").hidden = false;
    by("flame-reset").addEventListener("click", whole);
    by("flame-sandwich").addEventListener("click", () => sandwich(state.zoomed.data.name));
    by("sandwich").addEventListener("keydown", (event) => {
      if (event.key === "Escape") whole();
    });
    const across = () => by("flame").parentElement.clientWidth;
    let width = across();
    const resize = () => {
      if (across() !== width) redraw();
      width = across();
    };
    const open = () => {
      if (restore()) by("flames").scrollIntoView();
      state.isOpen = true;
    };
    return { choose, resize, restore: open };
  };
})((window.tlstax = window.tlstax || {}));
