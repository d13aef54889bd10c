/* The comparison: rows by number, their facts, and explanations in words. */

const OTHER_BITS = "≠ bits";
const CAUSE = 1, BOUND = 2, INPUTS_EQUAL = 4, CAST = 8, OTHER_ARGUMENTS = 16;

const DITTO = '"';

/** A text cut into pieces of given lengths in characters, negative where a piece differs; the rest is one more piece. */
function cut(text, lengths) {
  const characters = [...text], pieces = [];
  let at = 0;
  for (const length of [...lengths, characters.length]) {
    const piece = characters.slice(at, at + Math.abs(length)).join("");
    if (piece) pieces.push([piece, length < 0]);
    at += Math.abs(length);
  }
  return pieces;
}

/** Pieces without their first characters. */
function without(pieces, count) {
  const rest = [];
  for (const [text, differs] of pieces) {
    const characters = [...text];
    if (count < characters.length) rest.push([characters.slice(count).join(""), differs]);
    count = Math.max(count - characters.length, 0);
  }
  return rest;
}

class Comparison {
  constructor({ head, arrays }) {
    Object.assign(this, head.page);
    this.length = head.rows;
    this.tables = head.tables;
    this.groups = head.groups;
    this.slots = head.slots;
    this.regions = head.regions;
    this.nameMarks = head.nameMarks;
    this.resultsLeftOut = head.resultsLeftOut;
    this.inputNumbers = head.inputNumbers;
    this.arrays = arrays;
    this.resultStart = startsOf(arrays.results ?? []);
    this.code = Object.fromEntries(this.statuses.map((status, code) => [status.label, code]));
  }

  status(row) { return this.statuses[this.arrays.status[row]]; }
  role(row) { return this.roles[this.arrays.role[row]]; }
  /** The role in words. */
  roleWord(row) { return this.isCause(row) ? "first cause" : this.roleWords[this.arrays.role[row]]; }
  isRed(row) { return this.status(row).red; }
  isCause(row) { return (this.arrays.flags[row] & CAUSE) !== 0; }
  isFirst(row) { return row === this.firstDifference; }
  error(row) { return this.arrays.error[row]; }
  errorText(row) { return errorText(this.arrays.error[row], this.arrays.flags[row] & BOUND); }
  units(row) { return unitsText(this.arrays.error[row], this.arrays.epsilon[row]); }
  has(side, row) { return this.arrays[`key${side}`][row] >= 0; }

  /** An entry of a table of text, by a column of one side; empty where it has none. */
  text(table, column, row) {
    const found = this.arrays[column]?.[row] ?? -1;
    return found < 0 ? "" : this.tables[table][found];
  }

  /** The key of one side; the keys of a group with `+` between them. */
  key(side, row) {
    const group = this.groups[row];
    if (group) return group[side === "A" ? 0 : 1].map((key) => this.tables.keys[key]).join(" + ");
    return this.text("keys", `key${side}`, row);
  }

  /** Both names as the list shows them, in pieces, [text, differs]; `merged` for one line: a, and of b what a does not say. */
  rowNames(row) {
    const [textA, textB] = ["A", "B"].map((side) => this.text("keys", `key${side}`, row));
    const [lengthsA, lengthsB, shared] = this.nameMarks[this.arrays.nameMark[row]] ?? [[], [], 0];
    const a = cut(textA, lengthsA), b = cut(textB, lengthsB), same = textA === textB;
    for (const [side, pieces] of [a, b].entries()) {
      const more = (this.groups[row]?.[side].length ?? 1) - 1;
      if (more > 0) pieces.push([` +${more.toLocaleString("en")}`, false]);
    }
    if (!textA || !textB) {
      const recompute = this.status(row).label === "recompute" ? [["(recompute)", false]] : [];
      const gap = recompute.length ? recompute : [["—", false]];
      return { a: textA ? a : gap, b: textB ? b : gap, merged: [textA ? a : b, recompute] };
    }
    if (same && !this.groups[row]) return { a, b: [[DITTO, false]], merged: [a, []] };
    return { a, b, merged: [a, without(b, shared)] };
  }

  /** A sign for a row that a person looks for. */
  sign(row) { return this.isCause(row) ? "●" : this.isFirst(row) ? "○" : this.notes[row] ? "✎" : ""; }

  /** The key of a, or of b where only b has one. */
  name(row) { return this.key("A", row) || this.key("B", row); }

  /** A fact shared by both sides: of a, or of b where a has no record. */
  shared(table, column, row) { return this.text(table, column + (this.has("A", row) ? "A" : "B"), row); }

  phase(row) { return this.phases[this.arrays[this.has("A", row) ? "phaseA" : "phaseB"][row]] ?? ""; }

  /** `method .97`, as in the list. */
  via(row) {
    const confidence = this.arrays.confidence[row];
    if (Number.isNaN(confidence)) return "";
    const method = this.methods[this.arrays.method[row]];
    return confidence >= 0.995 ? method : `${method} ${confidence.toFixed(2).slice(1)}`;
  }

  /** The inputs of a row, with those of the other side at the same position. */
  inputs(row) {
    const count = Math.max(this.arrays.inputsA[row], this.arrays.inputsB[row]);
    return Array.from({ length: count }, (_, position) => {
      const a = this.input("A", row, position), b = this.input("B", row, position);
      const bits = a.at < 0 || b.at < 0 ? 0 : this.arrays.inputDigests?.[a.at] ?? 0;
      const difference = differenceText(a.value, b.value);
      const agrees = bits ? bits === 1 : difference === "" ? null : difference === "0";
      const told = bits === 1 ? "0" : bits === 2 && ["", "0"].includes(difference) ? OTHER_BITS : difference;
      return { position, a, b, agrees, difference: told, name: a.name || b.name };
    });
  }

  input(side, row, position) {
    const { [`start${side}`]: start, [`maker${side}`]: maker } = this.arrays;
    const at = start[row] + position;
    if (at >= start[row + 1]) return { at: -1, value: "", maker: -1, name: "" };
    const value = numberText(this.arrays[`input${side}.digits`][at], this.arrays[`input${side}.exponent`][at]);
    return { at, value, maker: maker[at], name: this.text("parameters", `parameter${side}`, at) };
  }

  /** What a row returned besides its first output: further outputs, and inputs changed in place. */
  results(row) {
    const { arrays } = this, found = [];
    if (!arrays.results) return found;
    for (let at = this.resultStart[row]; at < this.resultStart[row + 1]; at++) {
      const [a, b] = ["A", "B"].map((side) => numberText(arrays[`result${side}.digits`][at], arrays[`result${side}.exponent`][at]));
      const [typeA, typeB] = ["A", "B"].map((side) => this.text("resultTypes", `resultType${side}`, at));
      const difference = differenceText(a, b), bits = arrays.resultDigest[at];
      const told = bits === 1 ? "0" : bits === 2 && ["", "0"].includes(difference) ? OTHER_BITS : difference;
      const type = typeA && typeB && typeA !== typeB ? `${typeA} ≠ ${typeB}` : typeA || typeB;
      found.push({ name: this.text("resultNames", "resultName", at), type, a, b, difference: told });
    }
    return found;
  }

  /** The consumers of a row, in order. */
  consumers(row) {
    const side = this.has("A", row) ? "A" : "B", { [`start${side}`]: start, [`maker${side}`]: maker } = this.arrays;
    const found = [];
    for (let reader = 0; reader < this.length; reader++) {
      for (let k = start[reader]; k < start[reader + 1]; k++) {
        if (maker[k] === row) { found.push(reader); break; }
      }
    }
    return found;
  }

  /** The numbers and names of both sides: [name, a, b, difference]; facts that neither side has are left out. */
  facts(row) {
    const facts = [];
    for (const [label, name] of this.statistics) {
      const [a, b] = ["A", "B"].map((side) => this.number(name, side, row));
      if (a || b) facts.push([label, a, b, differenceText(a, b, this.scale(name, row))]);
    }
    facts.push(...(this.inputNumbers[row] ?? []));
    const digest = this.arrays.digest?.[row] ?? 0;
    if (digest) facts.push(["bits", digest === 1 ? "equal" : "different", digest === 1 ? "equal" : "different", digest === 1 ? "" : "≠"]);
    for (const [label, name] of [["NaN", "nan"], ["Inf", "inf"], ["zeros", "zero"]]) {
      const [a, b] = ["A", "B"].map((side) => this.arrays[name + side]?.[row] ?? -1);
      if (Math.max(a, b) > 0) facts.push([label, ...[a, b].map((n) => (n < 0 ? "" : String(n))), a === b ? "" : "≠"]);
    }
    for (const [label, table, column] of [
      ["shape", "shapes", "shape"], ["dtype", "dtypes", "dtype"], ["location", "locations", "location"],
      ["arguments", "arguments", "arguments"],
      ["placement", "placement", "placement"], ["group", "group", "group"], ["stack", "stack", "stack"],
    ]) {
      const [a, b] = ["A", "B"].map((side) => this.text(table, column + side, row));
      if (a || b) facts.push([label, a, b, a && b && a !== b ? "≠" : ""]);
    }
    const phases = ["A", "B"].map((side) => this.phases[this.arrays[`phase${side}`][row]] ?? "");
    facts.push(["phase", ...phases, phases[0] && phases[1] && phases[0] !== phases[1] ? "≠" : ""]);
    const batches = ["A", "B"].map((side) => this.arrays[`microBatch${side}`][row]);
    if (Math.max(...batches) >= 0) facts.push(["micro-batch", ...batches.map((n) => (n < 0 ? "" : String(n))), ""]);
    facts.push(["line of the log", ...["A", "B"].map((side) => (this.has(side, row) ? String(this.arrays[`line${side}`][row]) : "")), ""]);
    return facts;
  }

  /** The scale of a difference (as in the verdict): extremes by the larger of both, means by the mean size. */
  scale(name, row) {
    const sizes = (...names) => ["A", "B"].flatMap((side) => names.map((of) => Math.abs(Number(this.number(of, side, row))))).filter(Number.isFinite);
    if (name === "Min" || name === "Max") return Math.max(...sizes("Min", "Max")) || NaN;
    if (name !== "Mean") return NaN;
    const elements = (this.shared("shapes", "shape", row).match(/\d+/g) ?? []).reduce((n, size) => n * Number(size), 1);
    return Math.max(...sizes("output")) / elements || NaN;
  }

  number(name, side, row) {
    const digits = this.arrays[`${name}${side}.digits`];
    return digits ? numberText(digits[row], this.arrays[`${name}${side}.exponent`][row]) : "";
  }

  /** The largest magnitude in the output of either side; NaN where no log says. */
  largest(row) {
    const sizes = ["MinA", "MaxA", "MinB", "MaxB"].map((name) => {
      const digits = this.arrays[`${name}.digits`];
      return digits ? Math.abs(numberValue(digits[row], this.arrays[`${name}.exponent`][row])) : NaN;
    }).filter((size) => !Number.isNaN(size));
    return sizes.length ? Math.max(...sizes) : NaN;
  }

  /** Verdict and role in a sentence: the program's, or a shorter one where the page has none. */
  headline(row) {
    if (this.told[row]) return this.told[row];
    const status = this.status(row), role = this.role(row), error = this.errorText(row);
    const what = this.slots[row] ? `${this.slots[row]} differs` : "the output differs";
    const units = this.units(row), by = error && error !== "0" ? `${what} by ${error}${units ? ` (${units} ε)` : ""}` : what;
    if (status.label === "close") return `close: ${by.replace(/^the output /, "")}${this.tolerance(row, ", within the tolerance of ")}`;
    if (!status.red) return `${status.word}: ${status.meaning}`;
    if (status.label !== "diverged") return `${this.roleWord(row)}: ${status.meaning}`.replace(/^: /, "");
    if (role === "origin") return `FIRST CAUSE: ${by}; its inputs agree`;
    if (role !== "receiver") return `${this.isCause(row) ? "LIKELY CAUSE" : "UNKNOWN"}: ${by}; not all inputs are known: suspect the operation just upstream`;
    const guilty = this.guilty(row);
    if (guilty?.agrees) return `CONSEQUENCE: ${by}; input ${guilty.position} comes from a diverged op, although its norm matches: ${guilty.key}`;
    if (guilty) return `CONSEQUENCE: ${by}; input ${guilty.position} already differs${this.readInstead(guilty) || `, from ${guilty.key}`}`;
    const differing = this.inputs(row).find((input) => input.agrees === false);
    return `CONSEQUENCE: ${by}; ${differing ? this.already(differing) : "downstream of an earlier divergence"}`;
  }

  /** An input that differs, in words. */
  already(input) {
    const { position, difference } = input, read = this.readInstead(input);
    if (read) return `input ${position} already differs${read}`;
    return difference === OTHER_BITS ? `input ${position} already differs bitwise` : `input ${position} already differs by ${difference}`;
  }

  /** The producers of an input where they are no partners; empty otherwise. */
  readInstead({ a, b }) {
    if (a.maker < 0 || b.maker < 0 || a.maker === b.maker) return "";
    return `: a reads ${this.text("keys", "keyA", a.maker)}, b reads ${this.text("keys", "keyB", b.maker)}`;
  }

  /** The red or first-cause producer of an input that explains the row. */
  guilty(row) {
    for (const { position, a, b, agrees } of this.inputs(row)) {
      for (const [side, { maker }] of [["A", a], ["B", b]]) {
        if (maker < 0 || !(this.isRed(maker) || this.isCause(maker))) continue;
        return { position, agrees, a, b, maker, key: this.text("keys", `key${side}`, maker) };
      }
    }
    return null;
  }

  /** The tolerance with words before it; empty where none was used. */
  tolerance(row, words) {
    const limit = this.arrays.tolerance[row];
    return Number.isFinite(limit) ? words + short(limit) : "";
  }

  /** The reason for the pair, or that there is none. */
  pairing(row) {
    const confidence = this.arrays.confidence[row];
    if (Number.isNaN(confidence)) return this.has("A", row) ? "no partner in b" : "no partner in a";
    const method = this.methods[this.arrays.method[row]];
    const rival = this.text("keys", "runnerUp", row), score = this.arrays.runnerUpScore[row];
    const runnerUp = rival && score >= 0.005 ? `; runner-up ${rival}, ${score.toFixed(2)}` : "";
    return `paired: ${method}, ${this.pairedBy[method]}, confidence ${confidence.toFixed(2)}${runnerUp}`;
  }

  /** A row to paste into a discussion. */
  markdown(row) {
    const span = (text) => {
      const fence = "`".repeat(1 + Math.max(0, ...(text.match(/`+/g) ?? []).map((run) => run.length)));
      return fence.length > 1 ? `${fence} ${text} ${fence}` : `${fence}${text}${fence}`;
    };
    const a = this.key("A", row), b = this.key("B", row);
    const keys = !a || !b ? `${span(a || b)} (only in ${a ? "a" : "b"})` : a === b ? span(a) : `${span(a)} <-> ${span(b)}`;
    const facts = [this.status(row).label, this.roleWord(row), this.errorText(row) && `error ${this.errorText(row)}`, this.phase(row)];
    facts.push(...["shapes shape", "dtypes dtype", "locations location"].map((pair) => this.shared(...pair.split(" "), row)).filter(Boolean).map(span));
    return `${keys}  \n${facts.filter(Boolean).join(", ")}  \n${span(this.headline(row))}\n`;
  }
}
