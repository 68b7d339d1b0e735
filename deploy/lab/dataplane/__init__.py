"""The suite `dataplane`: messages between uroce and Soft-RoCE, and the golden vectors."""
