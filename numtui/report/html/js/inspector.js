/* Inspector of one row: verdict, pairing, numbers of both sides, and producers of the inputs. */

function inspect(c, row, go) {
  const panel = document.getElementById("inspector");
  panel.replaceChildren();
  if (row < 0) { panel.append(element("p", {}, "No row is chosen.")); return; }
  const { a, b } = c.rowNames(row), status = c.status(row), group = Boolean(c.groups[row]);
  const names = c.has("A", row) && c.has("B", row) ? [["a", a], ["b", b]] : c.has("A", row) ? [["only in a", a]] : [["only in b", b]];
  const same = names.length === 2 && c.key("A", row) === c.key("B", row);
  for (const [side, pieces] of same ? [["", a]] : names) {
    const shown = group ? [c.key(side.at(-1).toUpperCase(), row)] : marked(pieces);
    panel.append(element("p", { className: "name" }, side && `${side} `, element("code", {}, ...shown)));
  }
  if (c.notes[row]) panel.append(element("p", { className: "close" }, `✎ ${c.notes[row]}`));
  const headline = element("p", { className: status.style }, `${status.glyph} ${c.headline(row)}`);
  headline.id = "headline";
  panel.append(headline);
  if (c.isCause(row)) panel.append(element("p", { className: "cause" }, "● first cause: no upstream row explains it"));
  if (c.isFirst(row)) panel.append(element("p", { className: "close" }, "○ first difference, however small"));
  if (c.follows[row]) panel.append(element("p", {}, c.follows[row]));
  const role = c.roleMeaning[c.role(row)];
  if (role) panel.append(element("p", { className: "dim" }, role));
  if (status.label === "diverged") panel.append(element("p", { className: "dim" }, c.tolerance(row, "the tolerance is ")));
  if (c.arrays.flags[row] & INPUTS_EQUAL) panel.append(element("p", { className: "dim" }, "inputs are bitwise equal"));
  panel.append(element("p", { className: "dim" }, c.pairing(row)));
  panel.append(element("p", { className: "dim" }, `reason: ${c.reasons[c.arrays.reason[row]]}`));
  const original = c.arrays.original[row];
  if (original >= 0) panel.append(element("p", {}, "a copy of ", goButton(c.name(original), original, go)));
  panel.append(factTable(c, row), ...resultTable(c, row), ...inputTable(c, row, go), ...consumerList(c, row, go));
}

function factTable(c, row) {
  const table = headed(c, "");
  for (const [name, a, b, difference] of c.facts(row)) {
    const made = tableRow([name, a, b, difference], difference && difference !== "0");
    if (a === b && difference === "") {
      // A shared value spans both columns.
      made.children[1].colSpan = 2;
      made.children[2].remove();
    }
    table.append(made);
  }
  return table;
}

/** Outputs after the first, and inputs changed in place. */
function resultTable(c, row) {
  const results = c.results(row);
  if (!results.length) return [];
  const table = headed(c, "L1 norm");
  for (const { name, type, a, b, difference } of results) {
    const told = element("span", {}, name, element("br"), element("small", {}, type));
    table.append(tableRow([told, a, b, difference], difference && difference !== "0"));
  }
  const more = c.resultsLeftOut[row] ? [element("p", {}, `… and ${c.resultsLeftOut[row].toLocaleString("en")} more`)] : [];
  return [element("h2", {}, "Further results"), table, ...more];
}

function inputTable(c, row, go) {
  const inputs = c.inputs(row);
  if (!inputs.length) return [];
  const table = headed(c, "");
  for (const { position, a, b, agrees, difference, name } of inputs) {
    const cells = [a, b].map(({ value, maker }) => (maker < 0 ? value : element("span", {}, `${value} ← `, goButton(c.name(maker), maker, go))));
    table.append(tableRow([`${position} ${name}`, ...cells, difference], agrees === false));
  }
  return [element("h2", {}, "Inputs"), table];
}

const MOST_CONSUMERS = 20;

function consumerList(c, row, go) {
  const readers = c.consumers(row);
  if (!readers.length) return [];
  const items = readers.slice(0, MOST_CONSUMERS).map((reader) => element("li", { className: c.status(reader).style }, `${c.status(reader).glyph} `, goButton(c.name(reader), reader, go)));
  if (readers.length > MOST_CONSUMERS) items.push(element("li", {}, `… and ${(readers.length - MOST_CONSUMERS).toLocaleString("en")} more`));
  return [element("h2", {}, "Consumers"), element("ul", {}, ...items)];
}

function headed(c, first) {
  return element("table", {}, element("tr", {}, ...[first, `a: ${c.names[0]}`, `b: ${c.names[1]}`, "Δ"].map((text) => element("th", {}, text))));
}

function tableRow(cells, differs) {
  const made = cells.map((cell, i) => element("td", { className: i === 0 ? "dim" : "key" }, cell));
  if (differs) made[3].classList.add("differs");
  return element("tr", {}, ...made);
}
