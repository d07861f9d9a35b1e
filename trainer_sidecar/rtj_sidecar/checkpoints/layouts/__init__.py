"""The layouts, one file each. See `base.Layout`."""
