"""Bytes in and out of a store: nothing here knows what a checkpoint is."""
