"""Effects: everything of the operator that waits, calls, logs or counts. Decisions are `core`'s."""
