/* The filter query, word for word that of the explorer (numtui/query/query.py, numtui/query/fields.py). */

const WORD = /(?:[^\s"]|"[^"]*(?:"|$))+/g;
const PARTS = /^(-(?=.))?(?:([A-Za-z]+)(:|>=|<=|>|<))?(.*)$/s;
const VALUE = /(?:[^,"]|"[^"]*")*/y;
const OPERATORS = { ">": (x, y) => x > y, "<": (x, y) => x < y, ">=": (x, y) => x >= y, "<=": (x, y) => x <= y };

/** Columns compared with a number; NaN, for which every comparison is false, where a row has none. */
const NUMBERS = {
  error: (c) => (row) => c.arrays.error[row],
  largest: (c) => (row) => c.largest(row),
  eps: (c) => (row) => c.arrays.error[row] / c.arrays.epsilon[row],
  conf: (c) => (row) => c.arrays.confidence[row],
  confidence: (c) => (row) => c.arrays.confidence[row],
  row: () => (row) => row + 1,
};

/** Searchable text columns: the table, the column, and the searched part of an entry. */
const COLUMNS = {
  file: ["locations", "location", (text) => text.replace(/:\d+$/, "")],
  at: ["locations", "location", (text) => text],
  dtype: ["dtypes", "dtype", (text) => text],
  shape: ["shapes", "shape", (text) => text.replaceAll(" ", "")],
  arg: ["arguments", "arguments", (text) => text],
};
const KEY_PARTS = {
  op: (key) => key.slice(key.lastIndexOf("/") + 1).replace(/^op_\d+_/, ""),
  module: (key) => key.slice(0, Math.max(key.lastIndexOf("/"), 0)),
};

/** A function from row to boolean; throws an Error with a sentence for an invalid word. */
function parseQuery(text, c, within = []) {
  const tests = (text.match(WORD) ?? []).map((word) => {
    if ((word.match(/"/g) ?? []).length % 2) throw new Error("unclosed quotation mark");
    const [, minus, name, sign, value] = PARTS.exec(word);
    const test = name === undefined ? parseText(value, c, within) : sign === ":" ? parseField(name, value, c) : parseNumber(name, sign, value, c);
    return minus ? (row) => !test(row) : test;
  });
  return (row) => tests.every((test) => test(row));
}

/** Text that a key contains, or the name of a saved filter. */
function parseText(value, c, within) {
  if (!value.startsWith("@") || value.length === 1) return keyContains(value.replaceAll('"', ""), c);
  const name = value.slice(1), saved = c.state.saved[name];
  if (saved === undefined) throw new Error(`no saved filter '${name}'`);
  if (within.includes(name)) throw new Error(`the saved filter '${name}' refers to itself`);
  return parseQuery(saved, c, [...within, name]);
}

function parseNumber(name, sign, value, c) {
  if (!(name in NUMBERS)) throw new Error(`${name} is not a number; known are ${Object.keys(NUMBERS).join(", ")}`);
  const limit = Number(value.replace(/^([+-]?)inf(inity)?$/i, "$1Infinity")), compare = OPERATORS[sign], column = NUMBERS[name](c);
  if (value.trim() === "" || Number.isNaN(limit)) throw new Error(`'${name}${sign}${value}': expected a number after ${sign}, like ${name}${sign}1e-3`);
  return (row) => compare(column(row), limit);
}

function parseField(name, value, c) {
  const fields = fieldNames(c);
  if (name in NUMBERS) throw new Error(`${name} is compared with a number, like ${name}>1e-3`);
  if (!fields.includes(name)) throw new Error(`${name}: is not a field; known are ${fields.sort().join(", ")} (a key with a colon: "${name}:…")`);
  const written = (["shape", "arg"].includes(name) ? [value] : betweenCommas(value)).map((part) => part.replaceAll('"', ""));
  const known = c.fields[name];
  const begun = (word) => (known && word && !(word in known) ? Object.keys(known).filter((each) => each.startsWith(word)) : []);
  const values = written.flatMap((word) => (begun(word).length ? begun(word) : [word]));
  for (const each of values) {
    if (known && !(each in known)) throw new Error(`${each ? `${name}:${each} is unknown;` : `${name}:`} expected one of ${Object.keys(known).join(", ")}`);
    if (!known && !each) throw new Error(`${name}: a value is missing`);
    if (name === "cause" && !(/^\d+$/.test(each) && Number(each) > 0)) throw new Error(`cause: expected a number from 1 on, not '${each}'`);
  }
  if (name === "cause") return fromCause(values.map((number) => Number(number) - 1), c);
  if (name in KEY_PARTS) return inKeys(values, c, KEY_PARTS[name]);
  if (name in COLUMNS) return inColumn(values, c, ...COLUMNS[name]);
  const flags = (values.includes("cause") ? CAUSE : 0) | (values.includes("cast") ? CAST : 0) | (name === "differs" ? OTHER_ARGUMENTS : 0);
  return oneOf(name, new Set(values.flatMap((word) => known[word])), flags, c);
}

function fieldNames(c) { return [...Object.keys(c.fields), "cause", ...Object.keys(COLUMNS), ...Object.keys(KEY_PARTS)]; }

function betweenCommas(value) {
  const parts = [];
  for (let at = 0; ; at = VALUE.lastIndex + 1) {
    VALUE.lastIndex = at;
    parts.push(VALUE.exec(value)[0]);
    VALUE.lastIndex = at + parts.at(-1).length;
    if (VALUE.lastIndex === value.length) return parts;
  }
}

/** A status, a role, a reason, a method, or a phase of either side, by its number; or what a flag says. */
function oneOf(name, codes, flags, c) {
  const { arrays } = c;
  if (name === "phase") return (row) => codes.has(arrays.phaseA[row]) || codes.has(arrays.phaseB[row]);
  const column = { status: arrays.status, is: arrays.status, role: arrays.role, reason: arrays.reason, method: arrays.method }[name];
  return (row) => codes.has(column?.[row]) || (arrays.flags[row] & flags) !== 0;
}

/** The rows that start a first cause, and its red consequences. */
function fromCause(numbers, c) {
  return (row) => numbers.includes(c.arrays.causeOf[row]) || numbers.includes(c.arrays.startOf[row]);
}

/** Rows with a key on either side that contains a text. */
function keyContains(text, c) {
  const needle = text.toLowerCase();
  return inTable(c, "keys", "key", (key) => key.toLowerCase().includes(needle));
}

function inKeys(values, c, part) { return inColumn(values, c, "keys", "key", part); }

function inColumn(values, c, table, column, shown) {
  const tests = values.map((value) => textTest(shown === COLUMNS.shape[2] ? shown(value) : value));
  return inTable(c, table, column, (entry) => tests.some((test) => test.test(shown(entry))));
}

/** Each distinct text is tested once, not once per row. */
function inTable(c, table, column, test) {
  const hit = c.tables[table].map(test), { [`${column}A`]: a, [`${column}B`]: b } = c.arrays;
  return (row) => hit[a[row]] === true || hit[b[row]] === true;
}

/** Tests whether a name contains a value, or equals it (`=value`, with `*`, `?` and `#`). A number never matches within another. */
function textTest(value) {
  if (value.startsWith("=") && value.length > 1) return new RegExp(`^${globPattern(value.slice(1))}$`, "is");
  const before = /^\d/.test(value) ? "(?<!\\d)" : "", after = /\d$/.test(value) ? "(?!\\d)" : "";
  return new RegExp(before + literal(value) + after, "i");
}

function literal(text) { return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"); }

const SIGNS = { "*": ".*", "?": ".", "#": "[0-9]+" };

/** A name with wildcards as a regular expression. */
function globPattern(glob) { return [...glob].map((character) => SIGNS[character] ?? literal(character)).join(""); }
