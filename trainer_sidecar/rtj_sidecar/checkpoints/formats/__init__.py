"""Readers of container formats: each checks a file by its own rules and executes nothing."""
