"""Which rows are listed: filter, fields, order, groups, data flow."""
