"""Helpers shared by the tests and by `make demo`: real tools and servers, started and stopped.

Nothing in here is installed with the product, and nothing in the product may import it.
"""
