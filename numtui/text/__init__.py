"""Text for the screen and for reports: safe, in lines of pieces with roles; editors as models."""
