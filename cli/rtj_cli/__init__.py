"""`rtj`: the product on one machine, and a look at checkpoints anywhere."""
