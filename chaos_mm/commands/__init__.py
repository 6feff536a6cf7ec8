"""The subcommands of ``chaos-mm`` that belong to no injection point; one module a command."""
