"""Exceptions of the laboratory: a requirement outside it is not met."""


class LabFailure(Exception):
    """A failure with a message for the user; no trace is printed."""


class StaleLists(LabFailure):
    """apt's package lists are missing or older than the archive. Updating them may help."""
