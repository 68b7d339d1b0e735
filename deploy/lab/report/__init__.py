"""Results: the verdicts, the table of them, and tshark's reading of captures."""
