"""The guides, one module for each layout. See `layouts.guide.Guide`."""
