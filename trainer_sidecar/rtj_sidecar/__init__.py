"""The sidecar that stands beside a trainer: it proves, ships and restores checkpoints.

It must never import torch or kubernetes, and never unpickle anything.
"""
