"""Trainers with the saving habits of real scripts: each is what a person wrote, and no more."""
