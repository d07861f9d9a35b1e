"""Trainers that only tests and benchmarks run."""
