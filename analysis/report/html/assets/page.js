// SPDX-License-Identifier: GPL-2.0-only
// The document and what is not a chart: theme, tabs, swatches.
"use strict";
(function (tlstax) {
  tlstax.document = JSON.parse(document.getElementById("document").textContent);

  // Flame graphs travel as [name, category, value, children] with positions in one list of names.
  function unpack([name, category, value, children, repaired, inlined]) {
    const { names } = tlstax.document;
    const node = { name: names[name], category: names[category], value, children: children.map(unpack) };
    if (inlined) node.inlined = true;
    return repaired == null ? node : { ...node, repaired };
  }
  for (const flame of tlstax.document.flames) flame.root = unpack(flame.root);

  // A colour by name, as a CSS variable: charts follow the theme without being drawn again.
  tlstax.colour = (kind, name) =>
    /^[a-z0-9_]+$/.test(name) ? `var(--${kind}-${name}, var(--bar))` : "var(--bar)";

  // The edge of a mark: darker on paper, lighter on slate, so that pale marks are seen as well.
  tlstax.edge = (colour) => `color-mix(in srgb, ${colour} 62%, var(--ink))`;

  const NAMES = {
    kdf_rng: "key derivation, random",
    on_cpu: "on CPU",
    off_cpu: "off CPU",
    tls: "TLS",
    tls_protocol: "TLS protocol",
    tde: "encryption at rest",
  };
  tlstax.name = (identifier) => NAMES[identifier] ?? identifier.replaceAll("_", " ");

  tlstax.paint = function (swatch, colour) {
    swatch.style.background = colour;
    swatch.style.borderColor = tlstax.edge(colour);
  };

  tlstax.paintSwatches = function (root) {
    for (const swatch of root.querySelectorAll("[data-colour]")) {
      const [kind, name] = swatch.dataset.colour.split(/-(.*)/);
      tlstax.paint(swatch, tlstax.colour(kind, name));
    }
  };

  tlstax.stillness = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  tlstax.startTheme = function () {
    const root = document.documentElement;
    const button = document.getElementById("theme");
    const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (root.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";
    const label = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      label();
    });
    prefersDark.addEventListener("change", label);
    label();
    button.hidden = false;
  };

  // Radio buttons are the tabs: arrow keys and screen readers know them already.
  tlstax.startTabs = function (changed) {
    for (const group of document.querySelectorAll("[data-tabs]")) {
      const name = group.dataset.tabs;
      const panels = document.querySelectorAll(`[data-panel="${name}"]`);
      const show = (index) => {
        for (const panel of panels) panel.hidden = panel.dataset.index !== index;
        changed(name, Number(index));
      };
      group.addEventListener("change", (event) => show(event.target.value));
      group.hidden = group.querySelectorAll("input").length < 2;
      show(group.querySelector("input:checked").value);
    }
  };
})((window.tlstax = window.tlstax || {}));
