"""From files to tensors: where models come from, how they are read, and the prepared snapshot."""
