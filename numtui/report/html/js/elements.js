/* Element builders. Text of a log only ever becomes text: no script parses HTML. */

/** An element with properties and children; text is a child. */
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** Pieces of a name, [text, differs]. */
function marked(pieces) { return pieces.map(([text, differs]) => (differs ? element("mark", {}, text) : text)); }

/** A button that goes to a row. */
function goButton(text, row, go) {
  return element("button", { type: "button", className: "go", onclick: () => go(row) }, text);
}
