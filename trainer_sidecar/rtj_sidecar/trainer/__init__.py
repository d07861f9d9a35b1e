"""Everything about the trainer's process: starting and ending it, and how far it is.

`supervise.py` and `supervisor/` run inside the trainer's container and are never imported by the
sidecar; the rest runs in the sidecar and talks to it through small files.
"""
