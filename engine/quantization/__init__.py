"""Weights in fewer bits, and the linear layers that compute with them."""
