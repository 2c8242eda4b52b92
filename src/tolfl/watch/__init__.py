"""A device that watches: rows are scored as they come, alarms grouped, stored on disk and sent to operators."""
