"""The text of a rule in Textual's editor. Its page hands it every key: so keys typed in a burst keep their order."""

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
"""Blanks that a tab stands for at most."""


class RuleText(TextArea, can_focus=False):
    """Plain text with line numbers.

    It never has Textual's focus: a widget gets that a moment after it was asked for, and the first letters of a burst
    would be commands.
    """

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
        # A cursor that blinks would send bytes for as long as it is looked at.
        self.set_reactive(TextArea.cursor_blink, False)
        self.wrong: tuple[int, int] | None = None
        """Line and column from which on the text is wrong."""

    def on_mount(self) -> None:
        """The cursor is drawn where the focus is."""
        self.has_focus = True

    def on_resize(self) -> None:
        """The text may take another number of lines."""
        self.post_message(Lines.Resized())
        self.call_after_refresh(self.scroll_cursor_visible)

    def open(self, text: str) -> None:
        """Edit a text, from the end of its first line."""
        self.load_text(text)
        self.move_cursor((0, len(self.document.get_line(0))))

    def rows(self, most: int) -> int:
        """Lines of the screen that the text takes, of so many."""
        return min(self.wrapped_document.height, most)

    def show(self, y: int, rows: int) -> None:
        """Show so many lines of the text, from line `y` of the screen on."""
        self.styles.offset = (0, y)
        self.styles.height = rows
        self.visible = True
        # When Textual does so itself, it does not know yet of a line that is new.
        self.scroll_cursor_visible()

    @property
    def before(self) -> str:
        """The text before the cursor."""
        return self.get_text_range((0, 0), self.cursor_location)

    def press(self, key: str, character: str | None) -> None:
        """Do what a key does, before the next one is looked at."""
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
        """Type or paste in place of what is selected; what no terminal shows is left out."""
        lines = text.expandtabs(_TAB).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        clean = "\n".join("".join(filter(str.isprintable, line)) for line in lines)
        self.replace(clean, *self.selection, maintain_selection_offset=False)

    def action_new_line(self) -> None:
        """A new line, indented like this one."""
        y, x = min(self.selection)
        line = self.document.get_line(y)
        self.type("\n" + line[: min(len(line) - len(line.lstrip(" ")), x)])

    def action_cut_to_end(self) -> None:
        """To the end of the line; there its break."""
        if self.selection.is_empty and self.cursor_at_end_of_line:
            self.action_delete_right()
        else:
            self.action_delete_to_end_of_line()

    def get_line(self, line_index: int) -> Text:
        """A line, character by character as safe as any other text, and marked where it is wrong."""
        shown = (safe_text(character) for character in self.document.get_line(line_index))
        line = Text("".join(character if len(character) == 1 else "�" for character in shown), end="", no_wrap=True)
        if self.wrong is not None and self.wrong[0] == line_index:
            line.stylize(self.get_component_rich_style("rule-text--wrong", partial=True), self.wrong[1])
        return line
