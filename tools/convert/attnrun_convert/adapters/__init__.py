"""Adapters, one file for each source library or family of modules; see ../registry.py."""
