"""From a place in a document to verified suggestions: the request pipeline."""
