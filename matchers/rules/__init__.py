"""The rule file and what its rules mean for two logs."""
