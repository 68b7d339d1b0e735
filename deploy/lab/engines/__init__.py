"""Distributed engines, unmodified over uroce, each beside its own TCP."""
