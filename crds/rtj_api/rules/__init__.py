"""Rules that two parts must agree on. Pure: no clock, no random, no I/O, no logging, no async."""
