"""The share of two logs that was compared, and the parts that nothing vouches for."""
