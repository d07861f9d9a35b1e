"""The operator: kopf's events, a keyed queue, and one loop that observes, decides and applies."""
