"""The error of a build that cannot go on."""


class BuildFailure(Exception):
    """Says what is missing and what to do."""
