"""Rule editor on Textual's text area; its page passes every key, so that bursts keep their order."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.actions import SkipAction, parse
from textual.binding import BindingType
from textual.widgets import TextArea

from numtui.text.safe import safe_text
from numtui.tui.textual_shims import bound_action
from numtui.tui.widgets.lines import Lines

__all__ = ["RuleText"]

_TAB = 2
"""Maximum spaces per tab."""


class RuleText(TextArea, can_focus=False):
    """Plain text editor without Textual's focus, which comes late: the first letters of a burst would be commands."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("enter", "new_line", ""),
        ("ctrl+h", "delete_left", ""),
        ("ctrl+k", "cut_to_end", ""),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rule-text--wrong"}

    def __init__(self) -> None:
        super().__init__(compact=True, show_line_numbers=True, highlight_cursor_line=False)
        self.set_reactive(TextArea.indent_width, _TAB)
        self.set_reactive(TextArea.match_cursor_bracket, False)
        # A blinking cursor sends bytes all the time.
        self.set_reactive(TextArea.cursor_blink, False)
        self.wrong: tuple[int, int] | None = None
        """Line and column of the error."""

    def on_mount(self) -> None:
        """Draw the cursor although the focus is elsewhere."""
        self.has_focus = True

    def on_resize(self) -> None:
        """Wrap again after a change of size."""
        self.post_message(Lines.Resized())
        self.call_after_refresh(self.scroll_cursor_visible)

    def open(self, text: str) -> None:
        """Edit a text, with the cursor at the end of its first line."""
        self.load_text(text)
        self.move_cursor((0, len(self.document.get_line(0))))

    def rows(self, most: int) -> int:
        """Return the screen lines of the text, at most `most`."""
        return min(self.wrapped_document.height, most)

    def show(self, y: int, rows: int) -> None:
        """Show the text on `rows` lines from screen line `y`."""
        self.styles.offset = (0, y)
        self.styles.height = rows
        self.visible = True
        # Textual's own scrolling does not know a new line yet.
        self.scroll_cursor_visible()

    @property
    def before(self) -> str:
        """Text before the cursor."""
        return self.get_text_range((0, 0), self.cursor_location)

    def press(self, key: str, character: str | None) -> None:
        """Handle a key before the next one."""
        action = bound_action(self, key)
        if action is not None:
            _, name, arguments = parse(action)
            try:
                getattr(self, f"action_{name}")(*arguments)
            except SkipAction:
                return
        elif character is not None and character.isprintable():
            self.type(character)

    def type(self, text: str) -> None:
        """Replace the selection by typed or pasted text, without control characters."""
        lines = text.expandtabs(_TAB).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        clean = "\n".join("".join(filter(str.isprintable, line)) for line in lines)
        self.replace(clean, *self.selection, maintain_selection_offset=False)

    def action_new_line(self) -> None:
        """Insert a line, indented like this one."""
        y, x = min(self.selection)
        line = self.document.get_line(y)
        self.type("\n" + line[: min(len(line) - len(line.lstrip(" ")), x)])

    def action_cut_to_end(self) -> None:
        """Delete to the end of the line; there, its break."""
        if self.selection.is_empty and self.cursor_at_end_of_line:
            self.action_delete_right()
        else:
            self.action_delete_to_end_of_line()

    def get_line(self, line_index: int) -> Text:
        """Return a line as safe text, with the error marked."""
        shown = (safe_text(character) for character in self.document.get_line(line_index))
        line = Text("".join(character if len(character) == 1 else "�" for character in shown), end="", no_wrap=True)
        if self.wrong is not None and self.wrong[0] == line_index:
            line.stylize(self.get_component_rich_style("rule-text--wrong", partial=True), self.wrong[1])
        return line
