"""A sitting over one comparison, without a screen: what a key press can change."""
