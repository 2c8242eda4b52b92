"""A device that watches: rows scored as they come, alarms grouped, kept on disk, and sent where operators look."""
