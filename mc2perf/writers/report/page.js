"use strict";
// Picks the row that the dials point at. Every row was answered beforehand: nothing is computed here.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("dials");
  if (!form) return;
  const dials = data.dials.map((dial) => ({
    ...dial,
    input: document.getElementById(`dial-${dial.name}`),
    shown: document.getElementById(`shown-${dial.name}`),
  }));
  const cells = [...document.querySelectorAll("#found tbody td")];
  const share = document.getElementById("share");
  const command = document.getElementById("command");
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

  function show() {
    let index = 0;
    const words = [...data.command];
    for (const dial of dials) {
      const position = Number(dial.input.value);
      const [label, ...asked] = dial.notches[position];
      index = index * dial.notches.length + position;
      dial.shown.textContent = label;
      dial.input.setAttribute("aria-valuetext", label);
      words.push(...asked);
    }
    const row = data.rows[index];
    const refused = row.length === 2;
    cells.forEach((cell, i) => {
      cell.textContent = refused ? ["" + row[0], `refused: ${row[1]}`][i] ?? "" : row[i];
    });
    share.style.width = refused ? "0" : `${row[row.length - 1] / 10}%`;
    command.textContent = words.map(quoted).join(" ");
  }

  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(show));
  show();
})();
