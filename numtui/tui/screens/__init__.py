"""What takes the whole screen: the explorer, and what it asks or shows over itself."""
