"""Everything that imports Textual: app, screens, widgets, repainting."""
