/* The rows on paper: the list draws only what is seen on the screen, so printing writes a table of its own. */

const MOST_PRINTED = 1000;

/** The listed rows, equal stretches folded. */
function printRows(c, listing, paper) {
  const printed = new Listing(c);
  Object.assign(printed, { shown: listing.shown, test: listing.test, order: listing.order, folded: true, cursor: -1 });
  printed.build();
  const lines = Math.min(printed.lines.length, MOST_PRINTED);
  const heads = ["", "row", "status", `a: ${c.names[0]}`, `b: ${c.names[1]}`, "error", "source line"];
  const body = element("tbody");
  for (let line = 0; line < lines; line++) body.append(printedRow(printed, printed.lines[line], printed.folds[line]));
  const left = printed.lines.length - lines;
  const told = left ? `The first ${lines.toLocaleString("en")} of ${printed.lines.length.toLocaleString("en")} listed lines; a filter chooses others.` : "";
  paper.replaceChildren(
    element("h2", {}, "Rows"),
    element("p", {}, told),
    element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", {}, text)))), body),
  );
}

function printedRow(printed, row, folded) {
  const { c } = printed;
  const number = element("td", { className: "number" }, String(row + 1));
  if (folded) {
    return element("tr", {}, element("td"), number, element("td", { colSpan: 5, className: "dim" }, printed.foldText(row, folded)));
  }
  const { a, b } = c.rowNames(row), status = c.status(row);
  return element("tr", { className: status.style },
    element("td", {}, c.sign(row)), number,
    element("td", {}, `${status.glyph} ${status.word}`),
    element("td", { className: "key" }, ...marked(a)), element("td", { className: "key" }, ...marked(b)),
    element("td", { className: "number" }, c.errorText(row)),
    element("td", { className: "key" }, c.shared("locations", "location", row)));
}
