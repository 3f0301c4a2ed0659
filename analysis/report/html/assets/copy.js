// SPDX-License-Identifier: GPL-2.0-only
// A button at each table that copies it as tab-separated text, for a spreadsheet or a ticket.
"use strict";
(function () {
  const SHOWN_MS = 2000;

  // A name that a spreadsheet would take for a formula gets its mark for text.
  function textOf(cell) {
    const text = cell.textContent.replace(/\s+/g, " ").trim();
    return /^[=@]/.test(text) ? `'${text}` : text;
  }

  // A cell that spans several columns is followed by empty ones.
  function lineOf(row) {
    const cells = [...row.cells].flatMap((cell) => [textOf(cell), ...Array(cell.colSpan - 1).fill("")]);
    return cells.join("\t");
  }

  // Browsers that keep the clipboard from files on disk still copy what is selected.
  function copySelected(text, beside) {
    const box = document.createElement("textarea");
    box.value = text;
    box.setAttribute("aria-hidden", "true");
    beside.after(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    beside.focus();
    return done;
  }

  async function copy(text, button) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copySelected(text, button);
    }
  }

  for (const box of document.querySelectorAll("details.table:has(table)")) {
    const caption = box.querySelector("summary").textContent.trim();
    const line = document.createElement("p");
    const button = document.createElement("button");
    const told = document.createElement("span");
    line.className = "copy";
    button.type = "button";
    button.textContent = "Copy as text";
    button.setAttribute("aria-label", `Copy as text: ${caption}`);
    told.setAttribute("role", "status");
    button.addEventListener("click", async () => {
      const rows = [...box.querySelectorAll("tr")].map(lineOf);
      const done = await copy(rows.join("\n") + "\n", button);
      told.textContent = done ? "Copied" : "The browser does not allow it: select the table instead";
      setTimeout(() => told.replaceChildren(), SHOWN_MS);
    });
    line.append(button, told);
    box.querySelector("summary").after(line);
  }
})();
