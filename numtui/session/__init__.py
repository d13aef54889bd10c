"""Session on one comparison, without a screen: state that key presses change."""
