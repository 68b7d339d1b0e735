"""Distributed engines, unmodified over uroce: MPI, UCX, libfabric, each beside its own TCP."""
