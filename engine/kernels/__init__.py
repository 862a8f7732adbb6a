"""What beats PyTorch's own operators: our compiled kernels, and how they are built and found."""
