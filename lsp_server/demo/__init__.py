"""A small real project that `ghostwright demo` completes, and the places where it does."""
