"""The exceptions of the laboratory: something outside it is not as it must be."""


class LabFailure(Exception):
    """Carries a sentence for the person at the terminal; no trace is printed."""


class StaleLists(LabFailure):
    """apt's package lists are missing or older than the archive; reading them anew may help."""
