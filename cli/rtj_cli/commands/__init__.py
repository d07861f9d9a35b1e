"""One module per group of commands: arguments, output and exit codes only."""
