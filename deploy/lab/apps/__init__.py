"""The suite `apps`: unmodified programs over uroce."""
