"""A template of a codedfl plug-in."""
