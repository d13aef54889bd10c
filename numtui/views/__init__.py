"""Session or comparison → lines of text; pure, without Textual."""
