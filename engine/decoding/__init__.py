"""From logits to text: picking tokens, and knowing when to stop."""
