"""Text for screen and reports: safe text, lines of styled pieces, editor models."""
