"""The rule file, and the meaning of its rules for two logs."""
