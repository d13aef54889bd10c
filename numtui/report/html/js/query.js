/* The filter query, word for word that of the explorer (numtui/query.py): all words have to fit, `-` turns one round. */

const COMPARED = /^(error|conf|confidence)(>=|<=|>|<)(.+)$/s;
const OPERATORS = { ">": (x, y) => x > y, "<": (x, y) => x < y, ">=": (x, y) => x >= y, "<=": (x, y) => x <= y };
const TABLES = { dtype: ["dtypes", "dtype"], shape: ["shapes", "shape"], at: ["locations", "location"] };

/** A function from row to boolean; throws an Error with a sentence for a word that means nothing. */
function parseQuery(text, comparison) {
  const words = text.split(/\s+/).filter(Boolean).map((word) => {
    const negated = word.startsWith("-") && word.length > 1;
    const test = parseWord(negated ? word.slice(1) : word, comparison);
    return negated ? (row) => !test(row) : test;
  });
  return (row) => words.every((test) => test(row));
}

function parseWord(word, c) {
  const compared = COMPARED.exec(word);
  if (compared) {
    const [, name, sign, number] = compared, limit = Number(number), compare = OPERATORS[sign];
    if (number.trim() === "" || Number.isNaN(limit)) throw new Error(`'${word}': expected a number after ${sign}, like ${name}${sign}1e-3`);
    if (name === "error") return (row) => compare(c.arrays.error[row], limit);
    return (row) => c.arrays.confidence[row] >= 0 && compare(c.arrays.confidence[row] / 1000, limit);
  }
  const colon = word.indexOf(":");
  if (colon < 0) return keyContains(word, c);
  const field = word.slice(0, colon), value = word.slice(colon + 1), names = value.split(",");
  if (field === "op") return keyPart(value, c, (key) => key.slice(key.lastIndexOf("/") + 1).replace(/^op_\d+_/, ""));
  if (field === "module") return keyPart(value, c, (key) => key.slice(0, Math.max(key.lastIndexOf("/"), 0)));
  if (TABLES[field]) return tableContains(...TABLES[field], value, c);
  const known = { status: c.words, is: c.words, role: c.roles.slice(1), phase: c.phases, method: c.methods.slice(1) }[field];
  if (!known) throw new Error(`${field}: is no field; there are status, is, role, phase, method, op, module, dtype, shape, at, error> and conf<`);
  const choices = Array.isArray(known) ? known : Object.keys(known);
  const unknown = names.find((name) => !choices.includes(name));
  if (unknown !== undefined) throw new Error(`${field}:${unknown} is unknown; expected one of ${choices.join(", ")}`);
  if (field === "role") return (row) => names.includes(c.role(row));
  if (field === "method") return (row) => names.includes(c.methods[c.arrays.method[row]]);
  if (field === "phase") {
    const codes = names.map((name) => c.phases.indexOf(name));
    return (row) => codes.includes(c.arrays.phaseA[row]) || codes.includes(c.arrays.phaseB[row]);
  }
  const codes = new Set(names.flatMap((name) => c.words[name].map((label) => c.code[label])));
  const causes = names.includes("cause");
  return (row) => codes.has(c.arrays.status[row]) || (causes && c.isCause(row));
}

/** Rows with a key on either side that contains a text. */
function keyContains(text, c) { return keyPart(text, c, (key) => key); }

/** Texts are looked up once per distinct text, not once per row. */
function keyPart(text, c, part) {
  const needle = text.toLowerCase();
  const hit = c.tables.keys.map((key) => part(key).toLowerCase().includes(needle));
  const { keyA, keyB } = c.arrays;
  return (row) => hit[keyA[row]] === true || hit[keyB[row]] === true;
}

function tableContains(table, column, text, c) {
  const needle = text.toLowerCase();
  const hit = c.tables[table].map((entry) => entry.toLowerCase().includes(needle));
  return (row) => hit[c.arrays[`${column}A`][row]] === true || hit[c.arrays[`${column}B`][row]] === true;
}
