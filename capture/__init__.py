"""What writes operation logs. `log_format` owns their grammar and needs only the standard library."""
