"""Reports on a run that was checked against itself (`numtui check`), a module per form."""
