"""How much of two logs was compared, and what of them nothing vouches for."""
