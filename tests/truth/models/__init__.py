"""Small models as a stranger would write them; `# bug: NAME` marks the line where a planted bug computes or is used."""
