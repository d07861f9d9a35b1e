"""One run's history in a store: fences, ships, parts, manifests, marks, and what follows from them.

Knows records and keys, never how a layout looks on disk nor how a store is spoken to.
"""
