/* Listed rows by module, source line or operation, with red counts, as in numtui/query/grouping.py. */

const MOST_GROUPS = 30;

/** Name of the group of a row by query field: of its record in a, or in b where only b has one. */
const GROUP_NAMES = {
  module: (c, row) => KEY_PARTS.module(lead(c, row)),
  at: (c, row) => c.shared("locations", "location", row),
  op: (c, row) => KEY_PARTS.op(lead(c, row)),
};
const GROUP_TITLES = { module: "module", at: "source line", op: "operation" };

function lead(c, row) { return c.shared("keys", "key", row); }

/** Groups of rows, most red rows first, then by the largest error; `query` is the word that keeps a group. */
function grouped(c, rows, field) {
  const groups = new Map(), size = (row) => (Number.isNaN(c.error(row)) ? -1 : c.error(row));
  for (const row of rows) {
    const name = GROUP_NAMES[field](c, row), group = groups.get(name), red = c.isRed(row);
    if (!group) { groups.set(name, { name, query: name && exactly(field, name), rows: 1, red: Number(red), worst: row }); continue; }
    group.rows++;
    group.red += Number(red);
    // Red before others, large before small, early before late.
    const worstRed = c.isRed(group.worst);
    if (red !== worstRed ? red : size(row) !== size(group.worst) ? size(row) > size(group.worst) : row < group.worst) group.worst = row;
  }
  return [...groups.values()].sort((x, y) => y.red - x.red || size(y.worst) - size(x.worst) || x.worst - y.worst);
}

/** The word of a query for exactly this name (`exactly` of numtui/query/query.py). */
function exactly(field, name) {
  const plain = name.replaceAll('"', "?");
  return /[\s",]/.test(name) ? `${field}:"=${plain}"` : `${field}:=${plain}`;
}

function showGroups(c, rows, panel, { keep, go }) {
  const some = rows.length < c.length ? " listed" : "";
  panel.replaceChildren(element("p", { className: "dim" }, `${rows.length.toLocaleString("en")}${some} rows; a name keeps its rows, an error goes to the worst one.`));
  for (const [field, title] of Object.entries(GROUP_TITLES)) {
    const groups = grouped(c, rows, field);
    const head = element("tr", {}, ...["red", "rows", "worst", title].map((text) => element("th", {}, text)));
    const lines = groups.slice(0, MOST_GROUPS).map(({ name, query, rows: n, red, worst }) => element("tr", {},
      element("td", { className: red ? "number red" : "number" }, red.toLocaleString("en")),
      element("td", { className: "number" }, n.toLocaleString("en")),
      element("td", { className: "number" }, goButton(c.errorText(worst) || c.status(worst).glyph, worst, go)),
      element("td", {}, name ? keepButton(name, () => keep(query)) : "—")));
    panel.append(element("h2", {}, `By ${title}`), element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines)));
    if (groups.length > MOST_GROUPS) panel.append(element("p", {}, `… and ${(groups.length - MOST_GROUPS).toLocaleString("en")} more`));
  }
}

function keepButton(text, onclick) {
  return element("button", { type: "button", className: "go", onclick }, element("code", {}, text));
}
